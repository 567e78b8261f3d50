// Executable: a plan that can be run. Python calls run, JitFunction calls executable_run.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "array.h"
#include "plan.h"

namespace weft {

struct Executable {
  PyObject_HEAD
  Plan* plan;      // owned
  PyObject* name;  // owned str
  PyObject* weakrefs;
  unsigned long long runs;  // number of times it was started; GIL held
};

extern PyTypeObject* ExecutableType;

// An array that is on the stack if it is small.
template <class T, int32_t kStack>
class Small {
 public:
  explicit Small(int32_t count) : data_(count <= kStack ? stack_ : new T[size_t(count)]) {}
  ~Small() {
    if (data_ != stack_) delete[] data_;
  }
  Small(const Small&) = delete;
  Small& operator=(const Small&) = delete;
  T* data() { return data_; }
  T& operator[](int32_t i) { return data_[i]; }

 private:
  T stack_[kStack];
  T* data_;
};

inline bool is_executable(PyObject* object) { return Py_TYPE(object) == ExecutableType; }

// One operand of a call. buffer is nullptr for a host scalar, whose bytes at data live until the call returns.
struct Operand {
  char* data;
  Buffer* buffer;  // borrowed
};

// The buffers that Arrays give up for a call: released afterwards, unless they are given back.
class Donation {
 public:
  Donation() = default;
  ~Donation() {
    for (const Taken& each : taken_) {
      if (each.buffer != nullptr) buffer_release(each.buffer);
      if (each.remote != nullptr) remote_release(each.remote);
      Py_DECREF(each.array);
    }
  }
  Donation(const Donation&) = delete;
  Donation& operator=(const Donation&) = delete;

  // The Array is deleted from now on: code that runs meanwhile cannot use its memory, here or on another device.
  void take(Array* array) {
    if (array_is_deleted(array)) return;
    taken_.push_back({array, std::exchange(array->buffer, nullptr), std::exchange(array->remote, nullptr)});
    Py_INCREF(array);
  }

  void give_back() {
    for (Taken& each : taken_) {
      each.array->buffer = std::exchange(each.buffer, nullptr);
      each.array->remote = std::exchange(each.remote, nullptr);
    }
  }

 private:
  struct Taken {  // all owned; one of the two is nullptr
    Array* array;
    Buffer* buffer;
    struct Remote* remote;
  };
  std::vector<Taken> taken_;
};

constexpr int kNotStarted = -2;  // an error is set, and no input was changed

// Runs the plan. GIL held on entry and return; released meanwhile for long programs. operands: n_inputs of them, none
// deleted, each at least as large as in_avals says. donated: nullptr, or one flag per input: its buffer may be reused;
// the caller has taken it out of its Array and owns that reference. outputs receives one owned buffer per output.
// Returns 0, -1 with an error set, or kNotStarted.
int executable_run(Executable* executable, const Operand* operands, const bool* donated, Buffer** outputs);

// Runs a plan of another device than the host, with operands in its memory. Returns when all is launched: the outputs
// are pending.
int executable_run_on_device(Executable* executable, const Operand* operands, const bool* donated, Buffer** outputs);

// Sets the slots of the temporaries (the last ones) to parts of one block, *arena (owned; nullptr if there are no
// temporaries). False: no memory.
bool allocate_temporaries(const Plan& plan, Buffer** arena, char** slots, Buffer** owners);

// The places of `count` results: one for all of them, or a tuple with that of each. False with an error set.
bool read_places(PyObject* given, size_t count, std::vector<uint32_t>* places);

// Checks an Array against input i of the plan; 0, or -1 with an error set (deleted, or of another size).
int executable_check_input(const Executable* executable, int32_t i, const Array* array);

}  // namespace weft
