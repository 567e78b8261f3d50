// Executable: a plan and how to run it. Called by Python (run) and by JitFunction (executable_run).
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
  unsigned long long runs;  // how often it was started; GIL held
};

extern PyTypeObject* ExecutableType;

inline bool is_executable(PyObject* object) { return Py_TYPE(object) == ExecutableType; }

// One operand of a call. buffer is nullptr for a host scalar, whose bytes at data live until the call returns.
struct Operand {
  char* data;
  Buffer* buffer;  // borrowed
};

// The buffers that Arrays give up for a call: released afterwards, unless it gives them back.
class Donation {
 public:
  Donation() = default;
  ~Donation() {
    for (const auto& [array, buffer] : taken_) {
      if (buffer != nullptr) buffer_release(buffer);
      Py_DECREF(array);
    }
  }
  Donation(const Donation&) = delete;
  Donation& operator=(const Donation&) = delete;

  // The Array is deleted from now on: nothing that runs meanwhile may use what is given away.
  void take(Array* array) {
    if (array->buffer == nullptr) return;
    taken_.emplace_back(array, array->buffer);
    Py_INCREF(array);
    array->buffer = nullptr;
  }

  void give_back() {
    for (auto& [array, buffer] : taken_) array->buffer = std::exchange(buffer, nullptr);
  }

 private:
  std::vector<std::pair<Array*, Buffer*>> taken_;  // both owned
};

constexpr int kNotStarted = -2;  // an error is set, and every input is what it was

// Runs the plan. GIL held on entry and return; released meanwhile for long programs. operands: n_inputs, each at least
// as large as in_avals says and not deleted. donated: nullptr, or a flag per input: its buffer may be reused; the
// caller has taken it out of its Array and owns that reference. outputs receives one owned buffer per output. 0, -1
// with an error set, or kNotStarted.
int executable_run(Executable* executable, const Operand* operands, const bool* donated, Buffer** outputs);

// Gives the last slots of a run, the temporaries, their memory: parts of one block, *arena (owned; nullptr if there is
// nothing to hold). False: no memory.
bool place_temporaries(const Plan& plan, Buffer** arena, char** slots, Buffer** owners);

// Checks an Array against input i of the plan; 0, or -1 with an error set (deleted, or of another size).
int executable_check_input(const Executable* executable, int32_t i, const Array* array);

}  // namespace weft
