// Collectives over a group of ranks, each a small machine of states that is polled.
//
// A sum is computed where its slice belongs: every rank sends each other rank that one's slice, adds the slices it got
// in the order of ranks, and sends the result to all. That is the data of a ring (2 (n - 1) / n of the operand for each
// rank), and every bit is computed by one rank. Small operands travel whole, in one exchange, and are added by all.
#include <cstring>

#include "mpi.h"
#include "mpi_library.h"

namespace weft::mpi {
namespace {

constexpr size_t kWhole = 16 << 10;  // bytes of all parts up to which an operand travels whole
constexpr size_t kBlock = 2 << 20;   // bytes of an operand that are exchanged at a time
constexpr size_t kInFlight = 3;      // blocks

int tag_of(int tag, int phase) { return kCollectiveTags + tag * 2 + phase; }

class Step : public Operation {
 public:
  std::vector<int> awaited() const override {
    std::vector<int> ranks;
    messages_.awaited(&ranks);
    return ranks;
  }
  bool cancel() override { return messages_.cancel(); }
  bool poll() override { return messages_.done(); }

 protected:
  Messages messages_;
};

// Other members of the group, the next one first, so that not all send to the same rank at once.
template <class Visit>
void for_others(const Group& group, Visit visit) {
  int n = int(group.ranks.size());
  for (int step = 1; step < n; ++step) visit((group.me + step) % n);
}

char* at(void* data, size_t offset) { return static_cast<char*>(data) + offset; }
const char* at(const void* data, size_t offset) { return static_cast<const char*>(data) + offset; }

void copy(void* to, const void* from, size_t nbytes) {
  if (to != from && nbytes > 0) std::memmove(to, from, nbytes);
}

// ---- moves

class AllGather : public Step {
 public:
  AllGather(const Group& group, const void* in, void* out, size_t nbytes, int tag) {
    for_others(group, [&](int other) {
      messages_.receive(at(out, nbytes * size_t(other)), nbytes, group.ranks[size_t(other)], tag_of(tag, 0));
    });
    for_others(group, [&](int other) { messages_.send(in, nbytes, group.ranks[size_t(other)], tag_of(tag, 0)); });
    copy(at(out, nbytes * size_t(group.me)), in, nbytes);
  }
};

class AllToAll : public Step {
 public:
  AllToAll(const Group& group, const void* in, void* out, size_t nbytes, int tag) {
    for_others(group, [&](int other) {
      messages_.receive(at(out, nbytes * size_t(other)), nbytes, group.ranks[size_t(other)], tag_of(tag, 0));
    });
    for_others(group, [&](int other) {
      messages_.send(at(in, nbytes * size_t(other)), nbytes, group.ranks[size_t(other)], tag_of(tag, 0));
    });
    copy(at(out, nbytes * size_t(group.me)), at(in, nbytes * size_t(group.me)), nbytes);
  }
};

class Permute : public Step {
 public:
  Permute(const void* in, void* out, size_t nbytes, int source, const std::vector<int>& destinations, int tag) {
    bool keeps = false;
    for (int destination : destinations) keeps = keeps || destination == rank();
    if (source >= 0 && source != rank()) messages_.receive(out, nbytes, source, tag_of(tag, 0));
    for (int destination : destinations)
      if (destination != rank()) messages_.send(in, nbytes, destination, tag_of(tag, 0));
    if (keeps) copy(out, in, nbytes);
    if (source < 0 && nbytes > 0) std::memset(out, 0, nbytes);
  }
};

// Along a binomial tree: a rank that has the data sends it on to those at shrinking distances.
class Broadcast : public Step {
 public:
  Broadcast(const Group& group, void* data, size_t nbytes, int root, int tag)
      : group_(group), data_(data), nbytes_(nbytes), root_(root), tag_(tag_of(tag, 0)) {
    int n = int(group.ranks.size()), number = (group.me - root + n) % n;
    distance_ = 1;
    while (distance_ < n && (number & distance_) == 0) distance_ *= 2;
    if (number != 0) messages_.receive(data, nbytes, group.ranks[size_t((number - distance_ + root) % n)], tag_);
  }
  bool poll() override {
    if (!messages_.done()) return false;
    if (sent_) return true;
    sent_ = true;
    int n = int(group_.ranks.size()), number = (group_.me - root_ + n) % n;
    for (int distance = distance_ / 2; distance > 0; distance /= 2)
      if (number + distance < n)
        messages_.send(data_, nbytes_, group_.ranks[size_t((number + distance + root_) % n)], tag_);
    return messages_.done();
  }

 private:
  Group group_;
  void* data_;
  size_t nbytes_;
  int root_, tag_, distance_;
  bool sent_ = false;
};

// ---- sums

struct Reduction {
  Type type;
  Combine combine;
  size_t itemsize;

  Reduction(Type type, Combine combine) : type(type), combine(combine), itemsize(size_of(type)) {
    if (!reducible(type, combine)) throw Failure("no reduction of this kind for this dtype (mpi::reducible)");
  }
};

// Everything to everyone, added by all.
class SmallAllReduce : public Step {
 public:
  SmallAllReduce(const Group& group, Reduction how, const void* in, void* out, size_t count, int tag)
      : how_(how), out_(out), count_(count) {
    size_t nbytes = count * how.itemsize;
    all_.resize(nbytes * group.ranks.size());
    parts_.resize(group.ranks.size());
    for (size_t i = 0; i < parts_.size(); ++i) parts_[i] = all_.data() + nbytes * i;
    for_others(group, [&](int other) {
      messages_.receive(all_.data() + nbytes * size_t(other), nbytes, group.ranks[size_t(other)], tag_of(tag, 0));
    });
    copy(all_.data() + nbytes * size_t(group.me), in, nbytes);
    const char* mine = all_.data() + nbytes * size_t(group.me);  // `in` may be `out`
    for_others(group, [&](int other) { messages_.send(mine, nbytes, group.ranks[size_t(other)], tag_of(tag, 0)); });
  }
  bool poll() override {
    if (reduced_) return true;
    if (!messages_.done()) return false;
    reduce_parts(how_.type, how_.combine, parts_, out_, count_);
    return reduced_ = true;
  }

 private:
  Reduction how_;
  void* out_;
  size_t count_;
  std::vector<char> all_;
  std::vector<const void*> parts_;
  bool reduced_ = false;
};

// One exchange of slices and their sum: the rank at position j gets slices[j], of counts[j] elements, from all.
class SliceSum {
 public:
  void start(const Group& group, Reduction how, const char* const* slices, const size_t* counts, int tag) {
    mine_ = counts[group.me];
    size_t nbytes = mine_ * how.itemsize;
    scratch_.resize(nbytes * (group.ranks.size() - 1));
    parts_.resize(group.ranks.size());
    size_t row = 0;
    for (size_t i = 0; i < parts_.size(); ++i)
      parts_[i] = int(i) == group.me ? slices[i] : scratch_.data() + nbytes * row++;
    for_others(group, [&](int other) {
      messages.receive(const_cast<void*>(parts_[size_t(other)]), nbytes, group.ranks[size_t(other)], tag);
    });
    for_others(group, [&](int other) {
      messages.send(slices[other], counts[other] * how.itemsize, group.ranks[size_t(other)], tag);
    });
  }
  void finish(Reduction how, void* out) { reduce_parts(how.type, how.combine, parts_, out, mine_); }

  Messages messages;

 private:
  size_t mine_ = 0;
  std::vector<char> scratch_;
  std::vector<const void*> parts_;
};

// Blocks follow each other, several on their way at once: while one is added, the next ones travel.
class LargeAllReduce : public Operation {
 public:
  LargeAllReduce(const Group& group, Reduction how, const void* in, void* out, size_t count, int tag)
      : group_(group), how_(how), in_(in), out_(out), count_(count), tag_(tag) {
    block_ = std::max<size_t>(kBlock / how.itemsize, group.ranks.size());
    blocks_ = (count + block_ - 1) / block_;
    lanes_ = std::vector<Lane>(std::min(kInFlight, blocks_));
    while (started_ < lanes_.size()) start_block();
  }

  bool poll() override {
    for (;;) {
      bool moved = false;
      // in the order of blocks on every rank, so that messages of one tag meet their own
      if (summed_ < started_ && lane(summed_).sum.messages.done()) {
        gather_block(summed_++);
        moved = true;
      }
      while (done_ < summed_ && lane(done_).gather.done()) {
        ++done_;
        if (started_ < blocks_) start_block();
        moved = true;
      }
      if (done_ == blocks_) return true;
      if (!moved) return false;
    }
  }

  std::vector<int> awaited() const override {
    std::vector<int> ranks;
    for (const Lane& one : lanes_) {
      one.sum.messages.awaited(&ranks);
      one.gather.awaited(&ranks);
    }
    return ranks;
  }

  bool cancel() override {
    bool over = true;
    for (Lane& one : lanes_) {
      over = one.sum.messages.cancel() && over;
      over = one.gather.cancel() && over;
    }
    return over;
  }

 private:
  struct Lane {
    SliceSum sum;
    Messages gather;
  };
  Lane& lane(size_t block) { return lanes_[block % lanes_.size()]; }

  // Elements [low, high) of the block's slice for the rank at position j.
  void slice(size_t block, size_t j, size_t* low, size_t* high) const {
    size_t first = block * block_, length = std::min(block_, count_ - first), n = group_.ranks.size();
    *low = first + length * j / n;
    *high = first + length * (j + 1) / n;
  }

  void start_block() {
    size_t n = group_.ranks.size(), low, high;
    std::vector<const char*> slices(n);
    std::vector<size_t> counts(n);
    for (size_t j = 0; j < n; ++j) {
      slice(started_, j, &low, &high);
      slices[j] = at(in_, low * how_.itemsize);
      counts[j] = high - low;
    }
    lane(started_).sum.start(group_, how_, slices.data(), counts.data(), tag_of(tag_, 0));
    ++started_;
  }

  void gather_block(size_t block) {
    size_t low, high, size = how_.itemsize;
    Lane& its = lane(block);
    for_others(group_, [&](int other) {
      slice(block, size_t(other), &low, &high);
      its.gather.receive(at(out_, low * size), (high - low) * size, group_.ranks[size_t(other)], tag_of(tag_, 1));
    });
    slice(block, size_t(group_.me), &low, &high);
    its.sum.finish(how_, at(out_, low * size));
    for_others(group_, [&](int other) {
      its.gather.send(at(out_, low * size), (high - low) * size, group_.ranks[size_t(other)], tag_of(tag_, 1));
    });
  }

  Group group_;
  Reduction how_;
  const void* in_;
  void* out_;
  size_t count_;
  int tag_;
  size_t block_, blocks_;
  size_t started_ = 0, summed_ = 0, done_ = 0;
  std::vector<Lane> lanes_;
};

// The result is cut into blocks, and of each part of the operand the same block travels.
class ReduceScatter : public Operation {
 public:
  ReduceScatter(const Group& group, Reduction how, const void* in, void* out, size_t count, int tag)
      : group_(group), how_(how), in_(in), out_(out), count_(count), tag_(tag) {
    block_ = std::max<size_t>(kBlock / how.itemsize / group.ranks.size(), 1);
    blocks_ = (count + block_ - 1) / block_;
    lanes_ = std::vector<SliceSum>(std::min(kInFlight, blocks_));
    while (started_ < lanes_.size()) start_block();
  }

  bool poll() override {
    while (done_ < blocks_) {
      SliceSum& sum = lanes_[done_ % lanes_.size()];
      if (!sum.messages.done()) return false;
      sum.finish(how_, at(out_, done_ * block_ * how_.itemsize));
      ++done_;
      if (started_ < blocks_) start_block();
    }
    return true;
  }

  std::vector<int> awaited() const override {
    std::vector<int> ranks;
    for (const SliceSum& sum : lanes_) sum.messages.awaited(&ranks);
    return ranks;
  }

  bool cancel() override {
    bool over = true;
    for (SliceSum& sum : lanes_) over = sum.messages.cancel() && over;
    return over;
  }

 private:
  void start_block() {
    size_t n = group_.ranks.size(), first = started_ * block_;
    std::vector<const char*> slices(n);
    std::vector<size_t> counts(n, std::min(block_, count_ - first));
    for (size_t j = 0; j < n; ++j) slices[j] = at(in_, (count_ * j + first) * how_.itemsize);
    lanes_[started_ % lanes_.size()].start(group_, how_, slices.data(), counts.data(), tag_of(tag_, 0));
    ++started_;
  }

  Group group_;
  Reduction how_;
  const void* in_;
  void* out_;
  size_t count_;
  int tag_;
  size_t block_, blocks_;
  size_t started_ = 0, done_ = 0;
  std::vector<SliceSum> lanes_;
};

}  // namespace

Pending start_all_reduce(const Group& group, Type type, Combine combine, const void* in, void* out, size_t count,
                         int tag) {
  Reduction how(type, combine);
  if (count * how.itemsize * group.ranks.size() <= kWhole || group.ranks.size() == 1)
    return Pending(new SmallAllReduce(group, how, in, out, count, tag));
  return Pending(new LargeAllReduce(group, how, in, out, count, tag));
}

Pending start_reduce_scatter(const Group& group, Type type, Combine combine, const void* in, void* out, size_t count,
                             int tag) {
  return Pending(new ReduceScatter(group, Reduction(type, combine), in, out, count, tag));
}

Pending start_all_gather(const Group& group, const void* in, void* out, size_t nbytes, int tag) {
  return Pending(new AllGather(group, in, out, nbytes, tag));
}

Pending start_all_to_all(const Group& group, const void* in, void* out, size_t nbytes, int tag) {
  return Pending(new AllToAll(group, in, out, nbytes, tag));
}

Pending start_permute(const void* in, void* out, size_t nbytes, int source, const std::vector<int>& destinations,
                      int tag) {
  return Pending(new Permute(in, out, nbytes, source, destinations, tag));
}

Pending start_broadcast(const Group& group, void* data, size_t nbytes, int root, int tag) {
  return Pending(new Broadcast(group, data, nbytes, root, tag));
}

}  // namespace weft::mpi
