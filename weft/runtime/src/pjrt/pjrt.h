// Devices whose memory is not the host's: what the files pjrt_*.cpp and Array share. Plugins run whole programs on theirs;
// others are a Device (device.h), which runs the steps of a plan.
//
// A plugin, its client and its devices exist until the process ends. A device has a number, from 1; 0 is the CPU. The
// `place` of an Array is twice that number, plus 1 if the Array is committed to its device.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "array.h"
#include "exec.h"
#include "pjrt_api.h"

namespace weft {

// A loaded plugin: its table of functions.
struct Plugin {
  const pjrt::Api* api;
  std::string path;

  // Whether the plugin's table is long enough for an entry, and has it.
  bool has(pjrt::Function entry) const {
    size_t offset = offsetof(pjrt::Api, entries) + size_t(entry) * sizeof(void*);
    return offset + sizeof(void*) <= api->struct_size && api->entries[size_t(entry)] != nullptr;
  }
};

// Calls an entry that was probed when the plugin was opened. The caller owns the error; nullptr is success.
template <class Args>
pjrt::Error* pjrt_call(const Plugin& plugin, pjrt::Function entry, Args& args) {
  args.struct_size = sizeof(Args);
  return reinterpret_cast<pjrt::Error* (*)(Args*)>(plugin.api->entries[size_t(entry)])(&args);
}

// Sets a Python error with the plugin's text and destroys the plugin's error. GIL held; returns nullptr.
PyObject* set_pjrt_error(const Plugin& plugin, pjrt::Error* error, const char* what);

// Raises the class of such errors with a text of weft's own; returns nullptr.
PyObject* set_runtime_error(const std::string& text);

// Reports an error where none can be raised, and destroys it. GIL held; the current exception stays.
void report_pjrt_error(const Plugin& plugin, pjrt::Error* error, const char* what);
int pjrt_code(const Plugin& plugin, const pjrt::Error* error);
constexpr int kUnimplemented = 12;

// Waits for an event and destroys it. GIL held on entry and return; handles signals. 0, or -1 with the event's error
// set, or kInterrupted with what a signal's handler raised: then the event is still pending, and the caller's.
constexpr int kInterrupted = -2;
int pjrt_wait(const Plugin& plugin, pjrt::Event* event, const char* what);
bool pjrt_is_ready(const Plugin& plugin, pjrt::Event* event);  // without destroying it
void pjrt_destroy_event(const Plugin& plugin, pjrt::Event* event);

// One device that programs can run on.
struct PluginDevice {
  const Plugin* plugin;
  pjrt::Client* client;
  pjrt::Device* device;
  std::string name;  // "cpu_plugin:0"
  int32_t memory_type;  // of its memory as DLPack numbers them; 0: DLPack has no number for it
  int32_t memory_id;
  class Device* native = nullptr;  // if it is no plugin's: then the first three are nullptr
};
constexpr int32_t kHostMemory = 1;

// By number; [0] stands for the CPU. Entries are only added, with the GIL held.
std::vector<std::unique_ptr<PluginDevice>>& plugin_devices();

// The device of a place, or nullptr with a Python error set (no such device; a forked child).
PluginDevice* device_of_place(uint32_t place);

// True, with an error set, in a forked child of the process that made the clients: their threads are not here.
bool refuse_after_fork();
bool is_forked_child();

// The memory of an Array on a device, or the part that this process has of an Array that lies across processes (then
// there is no device). Counted by hand, with the GIL held.
struct Remote {
  int references = 1;
  Buffer* block = nullptr;  // owned: the elements that this process has; then nothing below is used
  uint32_t number;  // of the device
  bool ready = false;
  bool lent = false;               // its memory is somebody else's: never donated
  Buffer* memory = nullptr;        // owned: of a Device; nullptr if the memory is a plugin's
  pjrt::DeviceBuffer* handle;      // owned; nullptr if the memory is a Device's
  Buffer* host = nullptr;          // owned: a copy of the elements, or nullptr
  pjrt::Event* copying = nullptr;  // owned: the copy to `host` is under way
};

// Whether this process has a part of an Array, and no other Array shares it.
inline bool array_has_own_block(const Array* array) {
  return array->remote != nullptr && array->remote->block != nullptr && array->remote->references == 1;
}

inline Remote* remote_retain(Remote* remote) {
  ++remote->references;
  return remote;
}

// Owned Remote for a Device's buffer (stolen).
Remote* remote_new_native(uint32_t number, Buffer* memory);

// Owned Remote for a plugin's buffer (stolen).
Remote* remote_new(uint32_t number, pjrt::DeviceBuffer* handle);

// Owned Array across processes (this process has a part), or nullptr with an error set. Borrows aval, steals block.
Array* array_new_with_block(ShapedArray* aval, Buffer* block, uint32_t place);

// Owned Array. Borrows aval, steals remote (also when it fails).
Array* array_new_remote(ShapedArray* aval, Remote* remote, uint32_t place);

// A result as an Array, or as a NumPy array if its dtype is float0.
PyObject* remote_result_new(ShapedArray* aval, Remote* remote, uint32_t place);

// Owned Remote with a copy of host memory, or nullptr with an error set. GIL held, released meanwhile. `owner` is the
// Buffer that holds the memory (kept until it is copied), or nullptr: then the memory is read during the call only.
Remote* remote_from_host(uint32_t number, ShapedArray* aval, const char* data, Buffer* owner);

// Owned Remote with the elements of an Array on the device, or nullptr with an error set: the Array's own if it is there.
Remote* remote_of_array(uint32_t number, Array* array);

// Owned Buffer on the memory of an Array on a device, whose contents are computed: nobody writes to it while the Buffer
// lives. nullptr without an error: the plugin does not show it, or not in row-major order; with one: it failed.
Buffer* remote_memory(Remote* remote, ShapedArray* aval);

// Owned Remote on memory of a device that somebody else owns (`owner` keeps it, retained here until the plugin is done),
// or nullptr: without an error if the plugin takes no such memory.
Remote* remote_on_memory(uint32_t number, ShapedArray* aval, Buffer* owner);

int remote_block(Remote* remote);  // until it is computed; 0, or -1 with an error set
int remote_is_ready(Remote* remote);  // 1, 0, or -1 with an error set

// A program that a plugin compiled for a device; a Python object.
struct DeviceProgram {
  PyObject_HEAD
  PluginDevice* device;          // borrowed: exists until the process ends
  pjrt::Executable* executable;  // owned
  uint32_t number;               // of the device
  uint32_t n_outputs;
};

// Runs a program of a device on its own inputs. `inputs`: n_inputs of them, retained by the caller. donated: flags or
// nullptr. outputs receives owned Remotes. 0, or -1 or kNotStarted with an error set.
int device_run(Executable* executable, Remote* const* inputs, const bool* donated, Remote** outputs);

// A call of a jitted function by a program on a device: as call_cached of jit.cpp.
PyObject* call_on_device(struct Entry* entry, class Signature& signature, bool* handled);

// Executable.run of such a program. `places`: of all results, or of each; none: they are committed if an operand is.
PyObject* run_on_device(Executable* executable, PyObject* inputs, const bool* donated,
                        const std::vector<uint32_t>& places);

// The result of a call whose outputs (stolen) are on a device, as make_result of jit.cpp.
PyObject* remote_results(const struct CacheEntry* cached, Remote** outputs);

// Owned PjrtClient, whose devices are called `name`:0 and so on, and which owns the plugin's client from now on.
PyObject* client_new(const Plugin* plugin, pjrt::Client* client, const char* name);

// What a plugin says of a compiled program, for Python; nullptr with an error set, NotImplementedError for what the plugin
// does not say. `program` is borrowed.
PyObject* program_bytes(const Plugin& plugin, pjrt::Program* program);
PyObject* program_cost(const Plugin& plugin, pjrt::Program* program);    // dict
PyObject* program_memory(const Plugin& plugin, pjrt::Program* program);  // dict
PyObject* program_text(const Plugin& plugin, pjrt::Program* program);    // bytes
void program_destroy(const Plugin& plugin, pjrt::Program* program);

// Owned dict of a plugin's named values (borrowed).
PyObject* named_values(const pjrt::NamedValue* values, size_t count);

// Values of a dict as a plugin reads them; they point into the dict's own. False with an error set.
bool read_options(PyObject* options, std::vector<pjrt::NamedValue>* out);

// Facts of a device that may be elsewhere. Methods set `error`, the caller's, and do nothing after the first failure.
struct DeviceFacts {
  const Plugin& plugin;
  pjrt::Error* error = nullptr;

  pjrt::DeviceDescription* description(pjrt::Device* device);
  int number(pjrt::DeviceDescription* description, pjrt::Function entry);
  std::string text(pjrt::DeviceDescription* description, pjrt::Function entry);
  bool addressable(pjrt::Device* device);
  int local_id(pjrt::Device* device);
};

// PjrtPlugin.topology(name, options) -> owned PjrtTopology.
PyObject* topology_new(const Plugin* plugin, const char* name, PyObject* options);

// Owned PjrtProgram for an executable (stolen, also when it fails).
PyObject* device_program_new(uint32_t number, pjrt::Executable* executable);

// The plugin's number of an element type, or pjrt::kInvalid.
int element_type(const ShapedArray* aval);

int register_pjrt_clients(PyObject* module);
int register_pjrt_arrays(PyObject* module);
int register_pjrt_programs(PyObject* module);
int register_pjrt_topologies(PyObject* module);
int register_pjrt_memory(PyObject* module);

}  // namespace weft
