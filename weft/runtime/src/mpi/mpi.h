// Messages between processes through the MPI that mpi4py has loaded, and what is made of them: agreement and
// collectives that run in steps.
//
// weft is compiled against no MPI: functions are found by name in the loaded library, handles are words (Open MPI's are
// pointers, MPICH's ints). MPI moves bytes only; sums are weft's own, in the order of ranks, so that results have the
// same bits in every run and with every MPI.
//
// Every operation is started, then polled until it is done; nothing here waits but `wait`. No function needs the GIL.
// Operations of one pair of ranks are started in the same order on both. Buffers belong to the caller and live until
// the operation is done. All MPI calls are made under one lock, so MPI_THREAD_SERIALIZED is enough.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace weft::mpi {

// What users see as weft.errors.DistributedError: ranks that differ, are missing or have ended.
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

bool connected();
int rank();
int size();
// All operations from now on fail, and say why: after one has failed, ranks no longer run the same program.
void break_off(const std::string& reason);

// Messages that are on their way. Those of more than 1 GiB travel in pieces, since MPI counts in ints.
class Messages {
 public:
  Messages() = default;
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;
  ~Messages() { cancel(); }

  void send(const void* data, size_t nbytes, int destination, int tag);
  void receive(void* data, size_t nbytes, int source, int tag);
  bool done();                        // lets MPI work; throws Failure where MPI reports an error
  void awaited(std::vector<int>* ranks) const;  // adds those whose part has not come
  bool cancel();                      // false if MPI may still touch a buffer

 private:
  struct Message {
    uintptr_t request;
    int peer;
  };
  void add(void* data, size_t nbytes, int peer, int tag, bool sends);
  std::vector<Message> pending_;
};

class Operation {
 public:
  virtual ~Operation() = default;
  virtual bool poll() = 0;                        // true when it is done; throws Failure
  virtual std::vector<int> awaited() const = 0;   // ranks whose part has not come
  virtual bool cancel() = 0;                      // false if MPI may still touch a buffer
};

// An operation that MPI may still write for is never freed.
struct Release {
  void operator()(Operation* operation) const {
    if (operation->cancel()) delete operation;
  }
};
using Pending = std::unique_ptr<Operation, Release>;

// Polls until it is done or `seconds` are over, which gives false. Spins first, then sleeps longer and longer.
bool wait_for(Operation& operation, double seconds);

// Polls until it is done. After `warn_s` a line on stderr says whom it waits for; after `limit_s` (0: never) it throws
// Failure. Both are set by `set_limits`, to 10 and to the option collective_timeout.
void wait(Operation& operation, const std::string& what);
void set_limits(double warn_s, double limit_s);
std::string said_of_missing(const std::vector<int>& ranks);  // "rank 1", "ranks 1, 2 and 3"

// ---- agreement

// Compares what this rank is about to do with other ranks: number, fingerprint, and words for the error, at most 400
// bytes. Throws Failure that names both where they differ. Up to 8 ranks ask all others, more ask those at
// distances of powers of two. Agreements are started in the same order on all ranks.
Pending start_agree(uint64_t number, uint64_t fingerprint, const std::string& words);

// The last agreement: this rank goes. Ranks that compare anything else with it are told so.
Pending start_leaving(const std::string& words);

// ---- collectives over a group of ranks

enum class Type : uint8_t { i8, i16, i32, i64, u8, u16, u32, u64, boolean, f16, bf16, f32, f64, c64, c128 };
enum class Combine : uint8_t { sum, max, min };

size_t size_of(Type type);
bool type_of(const std::string& name, Type* type);  // of "float32"; false for those without sums here
// False for extrema of complex numbers and sums of booleans: gather, and reduce with weft's own operations.
bool reducible(Type type, Combine combine);
// out[i] = ((identity + parts[0][i]) + parts[1][i]) + ..., as reduce_sum over a first dimension adds (NUMERICS.md):
// halves in float32, rounded once; blocks of 256 parts. out may be one of the parts.
void reduce_parts(Type type, Combine combine, const std::vector<const void*>& parts, void* out, size_t count);

struct Group {
  std::vector<int> ranks;  // in the order in which they are summed and gathered
  int me = 0;              // the position of this rank
};

// `tag`: a number below 2^20 that all ranks of the group give, and no other operation in flight between two of them.
Pending start_all_reduce(const Group& group, Type type, Combine combine, const void* in, void* out, size_t count,
                         int tag);  // in may be out
Pending start_reduce_scatter(const Group& group, Type type, Combine combine, const void* in, void* out, size_t count,
                             int tag);  // count: of the result; in has as many for each rank
Pending start_all_gather(const Group& group, const void* in, void* out, size_t nbytes, int tag);  // nbytes: of in
Pending start_all_to_all(const Group& group, const void* in, void* out, size_t nbytes, int tag);  // nbytes: of a part
// Sends `in` to all destinations and receives `out` from `source`; -1: from nobody, and out is zeros.
Pending start_permute(const void* in, void* out, size_t nbytes, int source, const std::vector<int>& destinations,
                      int tag);
Pending start_broadcast(const Group& group, void* data, size_t nbytes, int root, int tag);  // root: a position

}  // namespace weft::mpi
