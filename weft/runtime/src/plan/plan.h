// The compiled program as native data: its slots, and the list of steps that run over them.
//
// Slots are numbered: inputs, outputs, temporaries. A step reads and writes memory at locations (slot, byte offset,
// dynamic offset). Locations are checked against the slot's size when the plan is built; that a kernel stays within its
// extents is the compiler's responsibility. A plan is immutable; its Python references are released with the GIL held.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "aval.h"
#include "buffer.h"
#include "exchange_step.h"
#include "kernel.h"

namespace weft {

// device_error: a device says why (Device::explain), or the error is set (a signal's handler raised).
enum class Status { ok, no_memory, cancelled, python_error, device_error };

class CudaDevice;
class Device;
struct Plan;

// Everything one run of a plan needs. On the stack of the caller, or part of a stream task.
struct Frame {
  char** slots;                        // base address per slot
  Buffer** owners;  // buffer per slot, or nullptr (host scalars); borrowed during the run
  int64_t* dynamic;                    // byte offsets computed by offset steps
  const Plan* plan;                    // whose slots these are
  PyThreadState* suspended = nullptr;  // the caller's thread state while it has released the GIL
  bool on_stream = false;              // no thread state: a stream thread runs this
  PyObject* error = nullptr;           // owned exception of a Python step that failed on a stream
  PyObject* error_traceback = nullptr;  // owned, or nullptr
  uint64_t number = 0;                  // of the stream's task, for cancellation; 0: none
  bool in_callback = false;  // the task called Python, and Python runs this
  int64_t run = 0;  // what foreign functions know it by; 0: none was called yet
  std::unique_ptr<Flights> flights = nullptr;  // exchanges on their way
};

struct Location {
  int32_t slot;
  int32_t dynamic;  // or -1
  int64_t offset;

  char* address(const Frame& frame) const {
    return frame.slots[slot] + offset + (dynamic >= 0 ? frame.dynamic[dynamic] : 0);
  }
};

class Step {
 public:
  virtual ~Step() = default;
  // May be called without the GIL. python_error: the error is set and the GIL held again (suspended is cleared), or,
  // on a stream, the exception is in frame.error.
  virtual Status run(Frame& frame) const = 0;
  virtual double cost_ns() const { return 0; }
  virtual bool is_kernel() const { return false; }
  // Kernels: false if run_part may be called from chunks of pool jobs, and while the thread's scratch is in use.
  virtual bool needs_scratch() const { return false; }
  // Kernels without outer dimensions: runs only indices part[0] to part[1] of the first dimension and part[2] to
  // part[3] of the vector dimension; -1 means to its end.
  virtual Status run_part(const Frame& frame, const int64_t (&part)[4]) const { return Status::ok; }
  // Whether it decides something on the host, and gets what it looks at from the plan's device (device.h). Others work on
  // memory, and are launched where that is.
  virtual bool on_host() const { return false; }
  // Asks a GPU for its work, to be done later, if the step has a form for that; false: it runs on the host.
  virtual bool is_enqueued() const { return false; }  // whether it always has one
  virtual const char* where() const { return ""; }  // in the user's program, if it is known
  virtual size_t n_launches() const { return 0; }  // on a GPU, of kernels and by libraries, if it is nothing else
  virtual bool enqueue(CudaDevice& device, Frame& frame, Status* status) const { return false; }
  virtual bool is_guardable() const { return false; }  // whether all it asks for obeys a guard (guard.h)
  virtual bool may_stall() const { return false; }  // whether there is a loop in it that ends by a condition (ahead.h)
  // Whether the following step, `next`, is this one with other operands and has become part of it.
  virtual bool absorb(const Step& next) { return false; }
  virtual bool is_python() const { return false; }
  // Whether it calls a user's function, whose order among other calls matters; guards that call Python do not count.
  virtual bool has_callbacks() const { return false; }
  virtual bool ends_exchange() const { return false; }  // it waits for an exchange with other processes
  // The programs that the step runs, by number; nullptr where there are no more.
  virtual struct Executable* inner_program(size_t number) const { return nullptr; }
  virtual bool is_unbounded() const { return false; }  // cost_ns is a guess: it may run for any length of time
  // For the cycle collector: the Python objects a step holds.
  virtual int traverse(visitproc visit, void* arg) const { return 0; }
  virtual void clear() {}

  Device* device = nullptr;  // where it is launched; nullptr: the thread that runs the plan runs it
  // The slots that a step launched elsewhere reads or writes, and their bytes. It writes to no input.
  std::vector<std::pair<int32_t, int64_t>> touched;
};

enum class OutputKind { fresh, donated, input, output };  // in the order of OUTPUTS in instructions.py

struct OutputPlan {
  OutputKind kind;
  int32_t source;  // the input or output it shares
  int64_t nbytes;
  ShapedArray* aval;  // owned; nullptr for shared outputs without one of their own
};

struct Plan {
  Device* device;  // that its memory is on; the host, for a plugin's program
  uint32_t number = 0;  // of the device that runs it, also of a plugin's; 0: the CPU
  int32_t n_inputs = 0;
  int32_t n_dynamic = 0;
  std::vector<ShapedArray*> in_avals;  // owned; one per input
  std::vector<OutputPlan> outputs;
  std::vector<std::pair<int64_t, int64_t>> temps;  // (offset, nbytes) in the arena
  int64_t arena_bytes = 0;
  std::vector<std::unique_ptr<Step>> steps;
  std::vector<int32_t> first_instruction;  // of each step: following ones may have become part of it
  double cost_ns = 0;
  int64_t n_kernels = 0;
  bool has_python = false;
  bool has_callbacks = false;
  bool unbounded = false;
  bool all_enqueued = true;  // no step waits for the device, or runs for long, on the thread that runs the plan
  std::string name;  // of the program
  std::string lines;  // of the user's, that a GPU runs: "in f at a.py:3:4 (g)"
  std::shared_ptr<class Replay> replay;  // runs the steps, if there is one
  struct DeviceProgram* device_program = nullptr;  // owned: of a plugin, which runs it instead of steps
  mutable std::atomic<struct PlanTimes*> times{nullptr};  // owned: what profiles count (profile.h)

  explicit Plan(Device* device) : device(device) {}
  int32_t n_slots() const { return n_inputs + int32_t(outputs.size()) + int32_t(temps.size()); }
  ~Plan();
};

// Owned plan, or nullptr with a Python error set. See Executable for the arguments.
std::unique_ptr<Plan> plan_from_python(Device* device, Py_ssize_t n_inputs, PyObject* outputs, PyObject* temps,
                                       Py_ssize_t arena_bytes, PyObject* instructions, PyObject* in_avals);

// The index of the iteration that a loop is in, and the loop around it on this thread.
struct Iteration {
  Iteration() : outer(innermost) { innermost = this; }
  ~Iteration() { innermost = outer; }
  Iteration(const Iteration&) = delete;
  Iteration& operator=(const Iteration&) = delete;
  int64_t index = 0;
  Iteration* const outer;
  static thread_local Iteration* innermost;
};

// The iterations of the loops that run on this thread, the outermost first: a tuple of ints (new reference).
PyObject* loop_iterations();

// Reads the fields of one instruction, and checks locations against slot sizes. Methods return false with an error set.
class LocationReader {
 public:
  LocationReader(const Plan& plan, std::vector<int64_t> slot_bytes) : plan_(plan), slot_bytes_(std::move(slot_bytes)) {}

  // object = (slot, offset, dynamic); nbytes < 0: unknown length.
  bool location(PyObject* object, int64_t nbytes, Location* out) const;
  // object = (slot, offset, aval)
  bool typed_location(PyObject* object, Location* out, ShapedArray** aval) const;
  // sequence = ((location, bytes), ...), appended to both
  bool sized(PyObject* sequence, std::vector<Location>* out, std::vector<int64_t>* sizes) const;
  bool check(const Location& location, int64_t nbytes) const;
  void note_dynamic(int32_t id, int64_t largest);
  int32_t n_dynamic() const { return int32_t(largest_.size()); }
  Device* device() const { return plan_.device; }
  // The slots of all locations that were read or checked since the last call, each once, with their bytes.
  std::vector<std::pair<int32_t, int64_t>> take_touched();

 private:
  const Plan& plan_;
  std::vector<int64_t> slot_bytes_;
  mutable std::vector<int32_t> touched_;
  std::vector<int64_t> largest_;     // largest value of each dynamic offset, -1: not defined yet
};

// Builders of one step from the record of an instruction; nullptr with a Python error set.
std::unique_ptr<Step> make_kernel_step(PyObject* record, const LocationReader& locations);
std::unique_ptr<Step> make_offset_step(PyObject* record, LocationReader& locations);
std::unique_ptr<Step> make_copy_step(PyObject* record, const LocationReader& locations);
std::unique_ptr<Step> make_copy_rows_step(PyObject* record, const LocationReader& locations);
std::unique_ptr<Step> make_fill_step(PyObject* record, const LocationReader& locations);
std::unique_ptr<Step> make_python_step(PyObject* record, const LocationReader& locations);
std::unique_ptr<Step> make_guard_step(PyObject* record, const LocationReader& locations);
std::unique_ptr<Step> make_loop_step(PyObject* record, const LocationReader& locations);
std::unique_ptr<Step> make_branch_step(PyObject* record, const LocationReader& locations);
std::unique_ptr<Step> make_routine_step(PyObject* record, const LocationReader& locations);
std::unique_ptr<Step> make_sort_step(PyObject* record, const LocationReader& locations);
std::unique_ptr<Step> make_gemm_step(PyObject* record, const LocationReader& locations);
std::unique_ptr<Step> make_exchange_step(PyObject* record, const LocationReader& locations);
std::unique_ptr<Step> make_done_step(PyObject* record, const LocationReader& locations);
std::unique_ptr<Step> make_launch_step(PyObject* record, const LocationReader& locations);
std::unique_ptr<Step> make_library_product_step(PyObject* record, const LocationReader& locations);
std::unique_ptr<Step> make_library_step(PyObject* record, const LocationReader& locations);
std::unique_ptr<Step> make_foreign_step(PyObject* record, const LocationReader& locations);

}  // namespace weft
