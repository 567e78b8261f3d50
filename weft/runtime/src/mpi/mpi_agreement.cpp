// Agreement: before ranks exchange anything, each compares what it is about to do with what the others are about to do.
#include <cstring>

#include "mpi.h"
#include "mpi_library.h"

namespace weft::mpi {
namespace {

constexpr int kTag = 1;
constexpr uint64_t kLeaves = ~uint64_t(0);
constexpr int kAllAsked = 8;  // ranks, up to which each asks all others

struct Note {
  uint64_t number;
  uint64_t fingerprint;
  uint32_t length;
  char words[492];

  std::string text() const { return std::string(words, std::min<size_t>(length, sizeof words)); }
};
static_assert(sizeof(Note) == 512);

std::vector<int> asked() {
  std::vector<int> ranks;
  int all = size(), me = rank();
  for (int other = 0; all <= kAllAsked && other < all; ++other)
    if (other != me) ranks.push_back(other);
  for (int distance = 1; all > kAllAsked && distance < all; distance *= 2) {
    int above = (me + distance) % all, below = (me - distance + all) % all;
    ranks.push_back(above);
    if (below != above) ranks.push_back(below);
  }
  return ranks;
}

std::string described(int rank, const Note& note) {
  return "rank " + std::to_string(rank) + ": " + note.text();
}

std::string difference(const Note& mine, int peer, const Note& theirs) {
  std::string me = std::to_string(rank()), other = std::to_string(peer);
  if (theirs.number == kLeaves)
    return "rank " + other + " has ended (" + theirs.text() + "), and rank " + me +
           " waits for it: all ranks run the same program\n  " + described(rank(), mine);
  std::string text = "ranks " + me + " and " + other + " run different programs";
  if (mine.fingerprint == theirs.fingerprint && mine.number != theirs.number)
    text = "ranks " + me + " and " + other + " have launched different numbers of programs: " +
           std::to_string(mine.number) + " and " + std::to_string(theirs.number);
  if (mine.text() == theirs.text() && mine.fingerprint != theirs.fingerprint)
    text += ", which differ in shapes, dtypes, static arguments or captured values";
  return text + "\n  " + described(rank(), mine) + "\n  " + described(peer, theirs) +
         "\nall ranks run the same programs in the same order, on the same shapes; look for what depends on "
         "process_index, on files, time, random seeds or the order of sets";
}

// Pairs of ranks send each other a note; each pair is compared as soon as it is there.
class Agreement : public Operation {
 public:
  Agreement(uint64_t number, uint64_t fingerprint, const std::string& words) : peers_(asked()) {
    mine_.number = number;
    mine_.fingerprint = fingerprint;
    mine_.length = uint32_t(std::min(words.size(), sizeof mine_.words));
    std::memset(mine_.words, 0, sizeof mine_.words);
    std::memcpy(mine_.words, words.data(), mine_.length);
    theirs_.resize(peers_.size());
    received_ = std::vector<Messages>(peers_.size());
    compared_.resize(peers_.size(), false);
  }

  void start() {
    for (size_t i = 0; i < peers_.size(); ++i) received_[i].receive(&theirs_[i], sizeof(Note), peers_[i], kTag);
    for (int peer : peers_) sent_.send(&mine_, sizeof(Note), peer, kTag);
  }

  bool poll() override {
    bool all = true;
    for (size_t i = 0; i < peers_.size(); ++i) {
      if (compared_[i]) continue;
      if (!received_[i].done()) {
        all = false;
        continue;
      }
      compared_[i] = true;
      bool same = theirs_[i].number == mine_.number && theirs_[i].fingerprint == mine_.fingerprint;
      if (!same && mine_.number != kLeaves) throw Failure(difference(mine_, peers_[i], theirs_[i]));
    }
    return sent_.done() && all;
  }

  std::vector<int> awaited() const override {
    std::vector<int> ranks;
    for (size_t i = 0; i < peers_.size(); ++i)
      if (!compared_[i]) received_[i].awaited(&ranks);
    if (ranks.empty()) sent_.awaited(&ranks);
    return ranks;
  }

  bool cancel() override {
    bool over = sent_.cancel();
    for (Messages& messages : received_) over = messages.cancel() && over;
    return over;
  }

 private:
  std::vector<int> peers_;
  Note mine_;
  std::vector<Note> theirs_;
  std::vector<Messages> received_;
  Messages sent_;
  std::vector<bool> compared_;
};

Pending started(uint64_t number, uint64_t fingerprint, const std::string& words) {
  auto* agreement = new Agreement(number, fingerprint, words);
  Pending pending(agreement);
  agreement->start();
  return pending;
}

}  // namespace

Pending start_agree(uint64_t number, uint64_t fingerprint, const std::string& words) {
  return started(number, fingerprint, words);
}

Pending start_leaving(const std::string& words) { return started(kLeaves, 0, words); }

}  // namespace weft::mpi
