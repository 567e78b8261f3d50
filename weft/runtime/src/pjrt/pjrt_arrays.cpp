// Arrays on devices of plugins: memory from and to the host, readiness, release.
#include <algorithm>
#include <cstring>

#include "device.h"
#include "module.h"
#include "numpy_api.h"
#include "pjrt.h"

namespace weft {

using pjrt::Function;

namespace {

constexpr int64_t kCopiedAtOnce = 64 << 10;  // bytes: smaller arrays are copied during the call, with the GIL held

struct TypeOfNumber {
  int type_number, element_type;
};
std::vector<TypeOfNumber> g_extra_types;  // of dtypes that are not NumPy's own; GIL held

// The extents of an aval on a device: of keys, those of their words.
struct Extents {
  int64_t extents[kMaxRank + 1];
  size_t rank;

  explicit Extents(const ShapedArray* aval) : rank(size_t(aval->ndim)) {
    std::copy_n(aval->extents, aval->ndim, extents);
    if (aval->type_number == kExtendedType) extents[rank++] = aval->itemsize / 4;
  }
};

const PluginDevice& device_of(const Remote* remote) { return *plugin_devices()[remote->number]; }

// The event, which the caller destroys, of the computation of a memory's contents; nullptr with an error set.
pjrt::Event* ready_event(Remote* remote) {
  const Plugin& plugin = *device_of(remote).plugin;
  pjrt::BufferReadyArgs args{};
  args.buffer = remote->handle;
  if (pjrt::Error* error = pjrt_call(plugin, Function::buffer_ready_event, args)) {
    set_pjrt_error(plugin, error, "readiness");
    return nullptr;
  }
  return args.event;
}

// The plugin's callback when a host's memory is no longer read or written: any thread, no GIL.
void release_host(pjrt::Error* error, void* buffer) {
  (void)error;  // the same error is found where the array is used; it is leaked, since no plugin is at hand here
  buffer_release(static_cast<Buffer*>(buffer));
}

// Releases `buffer` (stolen) once `event` (stolen) has happened.
void release_after(const Plugin& plugin, pjrt::Event* event, Buffer* buffer) {
  if (pjrt_is_ready(plugin, event)) {
    buffer_release(buffer);
  } else {
    pjrt::EventOnReadyArgs args{};
    args.event = event;
    args.callback = release_host;
    args.argument = buffer;
    pjrt_call(plugin, Function::event_on_ready, args);  // an error here leaks the memory, which may still be in use
  }
  pjrt_destroy_event(plugin, event);
}

// For an array that this process has only a part of.
PyObject* set_elsewhere_error(ShapedArray* aval) {
  Ref text = steal(aval_text(aval, true));
  if (text)
    PyErr_Format(PyExc_RuntimeError,
                 "Fetching the value of an Array (%U) that spans devices of other processes is not possible: this process "
                 "has a part of it. Read x.addressable_shards, or gather it on all processes by "
                 "weft.experimental.multihost_utils.process_allgather(x, tiled=True).",
                 text.get());
  return nullptr;
}

// Copies the memory of a Device to the host; 0, or -1 with an error set. `later`: the copy may be pending.
int fetch_native(Remote* remote, ShapedArray* aval, bool later) {
  Device& device = *device_of(remote).native;
  if (later) return remote->host = device.fetch_later(remote->memory, aval->nbytes), 0;
  Buffer* memory = buffer_retain(remote->memory);  // the array may be deleted meanwhile
  Buffer* host = buffer_wait(memory) < 0 ? nullptr : buffer_allocate(aval->nbytes);
  Status status = Status::no_memory;
  if (host != nullptr) {
    PyThreadState* state = PyEval_SaveThread();
    status = device.fetch(host->data, memory->data, aval->nbytes);
    in_python<PyEval_RestoreThread>(state);
  }
  buffer_release(memory);
  if (status == Status::ok && remote->host == nullptr) return remote->host = host, 0;
  if (host != nullptr) buffer_release(host);
  if (status != Status::ok && !PyErr_Occurred() && !(host != nullptr && device.explain(nullptr)))
    set_array_memory_error(aval, "device", "a copy on the host");
  return status == Status::ok ? 0 : -1;
}

// Starts the copy to the host, unless there is one; 0, or -1 with an error set. `later`: nobody waits for it yet.
int start_copy(Remote* remote, ShapedArray* aval, bool later = false) {
  if (remote->block != nullptr) return set_elsewhere_error(aval), -1;
  if (remote->host != nullptr) return 0;
  if (refuse_after_fork()) return -1;
  if (remote->memory != nullptr) return fetch_native(remote, aval, later);
  const PluginDevice& device = device_of(remote);
  Buffer* host = buffer_allocate(aval->nbytes);
  if (host == nullptr) {
    set_array_memory_error(aval, "device", "a copy on the host");
    return -1;
  }
  Extents shape(aval);
  int64_t minor_to_major[kMaxRank + 1];
  for (size_t i = 0; i < shape.rank; ++i) minor_to_major[i] = int64_t(shape.rank - 1 - i);
  pjrt::Layout layout{};
  layout.struct_size = sizeof layout;
  layout.tiled.struct_size = sizeof layout.tiled;
  layout.tiled.minor_to_major = minor_to_major;
  layout.tiled.minor_to_major_size = shape.rank;
  pjrt::BufferToHostArgs args{};
  args.buffer = remote->handle;
  args.layout = shape.rank > 1 ? &layout : nullptr;
  args.data = host->data;
  args.size = size_t(aval->nbytes);
  PyThreadState* state = PyEval_SaveThread();
  pjrt::Error* error = pjrt_call(*device.plugin, Function::buffer_to_host, args);
  in_python<PyEval_RestoreThread>(state);
  if (error != nullptr) {
    buffer_release(host);
    set_pjrt_error(*device.plugin, error, "copy to the host");
    return -1;
  }
  if (remote->host != nullptr) {  // another thread was faster
    release_after(*device.plugin, args.event, host);
    return 0;
  }
  remote->host = host;
  remote->copying = args.event;
  return 0;
}

// Borrowed copy on the host, complete; nullptr with an error set. The caller holds a reference to the Remote.
Buffer* host_copy(Remote* remote, ShapedArray* aval) {
  if (start_copy(remote, aval) < 0) return nullptr;
  while (remote->copying != nullptr) {
    if (refuse_after_fork()) return nullptr;  // the thread that copies is the parent's
    const PluginDevice& device = device_of(remote);
    pjrt::Event* event = std::exchange(remote->copying, nullptr);
    Buffer* host = std::exchange(remote->host, nullptr);
    // Other threads that ask meanwhile start a copy of their own.
    int status = pjrt_wait(*device.plugin, event, "copy to the host");
    if (status == kInterrupted) release_after(*device.plugin, event, host);  // the plugin still writes to it
    else if (status < 0) buffer_release(host);
    if (status < 0) return nullptr;
    if (remote->host == nullptr) remote->host = host;
    else if (remote->copying == nullptr) buffer_release(host);
    else std::swap(remote->host, host), release_after(*device.plugin, std::exchange(remote->copying, nullptr), host);
    remote->ready = true;
  }
  if (remote->host->pending != nullptr && buffer_wait(remote->host) < 0) return nullptr;
  return remote->host;
}

// Owned Remote with a copy on another device of the same client, made by the plugin; nullptr without an error if it must
// go through the host: the client is another, or the plugin does not copy.
Remote* copy_within_client(uint32_t number, Remote* from) {
  PluginDevice* to = device_of_place(number << 1);
  const PluginDevice& device = device_of(from);
  if (to == nullptr || from->memory != nullptr || to->client != device.client || !device.plugin->has(Function::buffer_to_device)) return nullptr;
  pjrt::BufferToDeviceArgs args{};
  args.buffer = from->handle;
  args.device = to->device;
  remote_retain(from);
  PyThreadState* state = PyEval_SaveThread();
  pjrt::Error* error = pjrt_call(*device.plugin, Function::buffer_to_device, args);
  in_python<PyEval_RestoreThread>(state);
  remote_release(from);
  if (error == nullptr) return remote_new(number, args.copy);
  bool unknown = pjrt_code(*device.plugin, error) == kUnimplemented;
  set_pjrt_error(*device.plugin, error, "copy between devices");
  if (unknown) PyErr_Clear();
  return nullptr;
}

void set_no_memory(Device& device, ShapedArray* aval, const char* what) {
  if (PyErr_Occurred() || device.explain(nullptr)) return;
  const std::string held = device.memory_text();
  if (held.empty()) set_array_memory_error(aval, device.name.c_str(), what);
  else
    set_memory_error_text(("RESOURCE_EXHAUSTED: Out of memory: " + (what + (": " + requested_text(aval->nbytes))) +
                           " requested on " + device.name + held)
                              .c_str());
}

// Owned Remote for a Device with a copy of host memory, or nullptr with an error set.
Remote* native_from_host(Device& device, ShapedArray* aval, const char* data) {
  Buffer* memory = device.allocate(aval->nbytes);
  if (memory != nullptr) {
    PyThreadState* state = aval->nbytes > kCopiedAtOnce ? PyEval_SaveThread() : nullptr;
    const Status status = device.upload(memory->data, data, aval->nbytes);
    if (state != nullptr) in_python<PyEval_RestoreThread>(state);
    if (status == Status::ok) return remote_new_native(device.number, memory);
    buffer_release(memory);
  }
  set_no_memory(device, aval, "a copy of host memory");
  return nullptr;
}

// Owned Remote with a copy of another Device's memory; nullptr without an error if it must go through the host.
Remote* copy_between_natives(uint32_t number, Remote* from, ShapedArray* aval) {
  PluginDevice* to = device_of_place(number << 1);
  if (to == nullptr || to->native == nullptr || from->memory == nullptr) return nullptr;
  Buffer* made = to->native->copy_of(*device_of(from).native, from->memory, aval->nbytes);
  return made == nullptr ? nullptr : remote_new_native(number, made);
}

// ---- functions for Python ----

bool read_array(PyObject* object, Array** out) {
  if (!is_array(object)) {
    PyErr_Format(PyExc_TypeError, "[pjrt] expected an Array, got %R", object);
    return false;
  }
  *out = reinterpret_cast<Array*>(object);
  return true;
}

PyObject* array_to_place(PyObject*, PyObject* args) {
  PyObject* object;
  unsigned int place;
  Array* array;
  if (!PyArg_ParseTuple(args, "OI:array_to_place", &object, &place) || !read_array(object, &array)) return nullptr;
  if (!is_host_place(place)) {
    if (device_of_place(place) == nullptr) return nullptr;
    Remote* remote = remote_of_array(device_number(place), array);
    if (remote == nullptr) return nullptr;
    return reinterpret_cast<PyObject*>(array_new_remote(array->aval, remote, place));
  }
  Buffer* buffer = array->buffer != nullptr ? array->buffer : array_ready_buffer(array);
  if (buffer == nullptr) return nullptr;
  Array* moved = array_new(array->aval, buffer_retain(buffer));
  if (moved != nullptr) moved->place = place;
  return reinterpret_cast<PyObject*>(moved);
}

PyObject* array_with_block(PyObject*, PyObject* args) {
  PyObject *aval, *object;
  unsigned int place;
  Array* block;
  if (!PyArg_ParseTuple(args, "O!OI:array_with_block", ShapedArrayType, &aval, &object, &place) ||
      !read_array(object, &block))
    return nullptr;
  auto* shaped = reinterpret_cast<ShapedArray*>(aval);
  if (block->remote != nullptr || block->buffer == nullptr || place < kHostPlaces || block->aval->nbytes >= shaped->nbytes) {
    PyErr_Format(PyExc_ValueError, "[array_with_block] %R at place %u has no such part %R", aval, place, block->aval);
    return nullptr;
  }
  return reinterpret_cast<PyObject*>(array_new_with_block(shaped, buffer_retain(block->buffer), place));
}

PyObject* array_block(PyObject*, PyObject* args) {
  PyObject *object, *aval;
  Array* array;
  if (!PyArg_ParseTuple(args, "OO!:array_block", &object, ShapedArrayType, &aval) || !read_array(object, &array))
    return nullptr;
  if (array_is_deleted(array)) return set_deleted_error(array);
  auto* shaped = reinterpret_cast<ShapedArray*>(aval);
  Buffer* buffer = array->remote == nullptr ? array->buffer : array->remote->block;
  if (buffer == nullptr || (array->remote == nullptr ? array->aval->nbytes : buffer->nbytes) != shaped->nbytes) {
    PyErr_Format(PyExc_ValueError, "[array_block] %R has no part %R in this process", array->aval, aval);
    return nullptr;
  }
  return reinterpret_cast<PyObject*>(array_new(shaped, buffer_retain(buffer)));
}

PyObject* array_is_part(PyObject*, PyObject* object) {
  Array* array;
  if (!read_array(object, &array)) return nullptr;
  return PyBool_FromLong(array->remote != nullptr && array->remote->block != nullptr);
}

PyObject* copy_to_host_async(PyObject*, PyObject* object) {
  Array* array;
  if (!read_array(object, &array)) return nullptr;
  Remote* remote = array->remote;
  if (remote == nullptr || remote->block != nullptr) Py_RETURN_NONE;
  if (remote->memory != nullptr && !device_of(remote).native->copies_ahead()) Py_RETURN_NONE;
  if (start_copy(remote, array->aval, true) < 0) return nullptr;
  Py_RETURN_NONE;
}

// The place that committed Arrays among the leaves ask for, 0 if there are none; -1: they ask for several.
PyObject* committed_place(PyObject*, PyObject* leaves) {
  Ref sequence = steal(in_python<PySequence_Fast>(leaves, "[committed_place] expected a sequence"));
  if (!sequence) return nullptr;
  long found = 0;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(sequence.get()); ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(sequence.get(), i);
    if (!is_array(item)) continue;
    long place = long(reinterpret_cast<Array*>(item)->place);
    if (!(place & 1) || place == found) continue;
    if (found != 0) return PyLong_FromLong(-1);
    found = place;
  }
  return PyLong_FromLong(found);
}

PyObject* set_types(PyObject*, PyObject* pairs) {
  if (!PyTuple_Check(pairs)) return PyErr_Format(PyExc_TypeError, "[set_pjrt_types] expected a tuple, got %R", pairs);
  g_extra_types.clear();
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(pairs); ++i) {
    PyObject* dtype;
    int type;
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(pairs, i), "O!i;[set_pjrt_types] (dtype, type)", &PyArrayDescr_Type, &dtype,
                          &type))
      return nullptr;
    g_extra_types.push_back({reinterpret_cast<PyArray_Descr*>(dtype)->type_num, type});
  }
  Py_RETURN_NONE;
}

PyMethodDef kFunctions[] = {
    {"array_to_place", entry_point<array_to_place>, METH_VARARGS,
     "array_to_place(array, place) -> Array there: twice the device's number, plus 1 for a committed one."},
    {"array_with_block", entry_point<array_with_block>, METH_VARARGS,
     "array_with_block(aval, block, place) -> Array that lies across processes; `block` is what this one has of it."},
    {"array_block", entry_point<array_block>, METH_VARARGS,
     "array_block(array, aval) -> Array of type aval on the memory that this process has of the array."},
    {"array_is_part", entry_point<array_is_part>, METH_O, "Whether this process has a part of an Array, not all of it."},
    {"copy_to_host_async", entry_point<copy_to_host_async>, METH_O, "Starts the copy of an Array to the host."},
    {"committed_place", entry_point<committed_place>, METH_O,
     "committed_place(leaves) -> the place of the committed Arrays, 0 for none; -1 if they disagree."},
    {"set_pjrt_types", entry_point<set_types>, METH_O, "set_pjrt_types(((dtype, type), ...)): beyond NumPy's own."},
    {},
};

}  // namespace

int element_type(const ShapedArray* aval) {
  switch (aval->type_number) {
    case kExtendedType: return pjrt::kU32;  // keys: words
    case NPY_BOOL: return pjrt::kPred;
    case NPY_INT8: return pjrt::kS8;
    case NPY_INT16: return pjrt::kS16;
    case NPY_INT32: return pjrt::kS32;
    case NPY_INT64: return pjrt::kS64;
    case NPY_UINT8: return pjrt::kU8;
    case NPY_UINT16: return pjrt::kU16;
    case NPY_UINT32: return pjrt::kU32;
    case NPY_UINT64: return pjrt::kU64;
    case NPY_HALF: return pjrt::kF16;
    case NPY_FLOAT: return pjrt::kF32;
    case NPY_DOUBLE: return pjrt::kF64;
    case NPY_CFLOAT: return pjrt::kC64;
    case NPY_CDOUBLE: return pjrt::kC128;
  }
  for (const TypeOfNumber& extra : g_extra_types)
    if (extra.type_number == aval->type_number) return extra.element_type;
  return pjrt::kInvalid;
}

Remote* remote_new_native(uint32_t number, Buffer* memory) {
  auto* remote = new Remote;
  remote->number = number;
  remote->memory = memory;
  return remote;
}

Remote* remote_new(uint32_t number, pjrt::DeviceBuffer* handle) {
  auto* remote = new Remote;
  remote->number = number;
  remote->handle = handle;
  return remote;
}

void remote_release(Remote* remote) {
  if (--remote->references > 0) return;
  if (remote->block != nullptr) {
    buffer_release(remote->block);
    delete remote;
    return;
  }
  if (remote->memory != nullptr) {
    if (remote->host != nullptr) buffer_release(remote->host);
    buffer_release(remote->memory);
    delete remote;
    return;
  }
  if (is_forked_child()) {  // the plugin's locks may be held by threads that are not here: its memory stays
    delete remote;
    return;
  }
  const Plugin& plugin = *device_of(remote).plugin;
  if (remote->copying != nullptr) release_after(plugin, remote->copying, remote->host);
  else if (remote->host != nullptr) buffer_release(remote->host);
  pjrt::BufferArgs args{};
  args.buffer = remote->handle;
  pjrt::Error* error = pjrt_call(plugin, Function::buffer_destroy, args);
  if (error != nullptr) report_pjrt_error(plugin, error, "release of memory");
  delete remote;
}

Array* array_new_with_block(ShapedArray* aval, Buffer* block, uint32_t place) {
  auto* remote = new Remote;
  remote->block = block;
  return array_new_remote(aval, remote, place);
}

Array* array_new_remote(ShapedArray* aval, Remote* remote, uint32_t place) {
  Array* array = array_new(aval, nullptr);
  if (array == nullptr) {
    remote_release(remote);
    return nullptr;
  }
  array->remote = remote;
  array->place = place;
  return array;
}

PyObject* remote_result_new(ShapedArray* aval, Remote* remote, uint32_t place) {
  if (aval->itemsize != 0) return reinterpret_cast<PyObject*>(array_new_remote(aval, remote, place));
  remote_release(remote);
  Buffer* nothing = buffer_allocate(0);
  return nothing == nullptr ? PyErr_NoMemory() : array_without_bytes(aval, nothing);
}

Remote* remote_from_host(uint32_t number, ShapedArray* aval, const char* data, Buffer* owner) {
  PluginDevice* device = device_of_place(number << 1);
  if (device == nullptr) return nullptr;
  if (device->native != nullptr) {
    return native_from_host(*device->native, aval, data);
  }
  pjrt::BufferFromHostArgs args{};
  args.type = element_type(aval);
  if (args.type == pjrt::kInvalid || aval->nbytes < 0) {
    PyErr_Format(PyExc_NotImplementedError, "[pjrt] %s takes no arrays of type %R", device->name.c_str(), aval);
    return nullptr;
  }
  Extents shape(aval);
  bool later = owner != nullptr && aval->nbytes > kCopiedAtOnce;
  args.client = device->client;
  args.data = data;
  args.extents = shape.extents;
  args.rank = shape.rank;
  args.semantics = later ? pjrt::kUntilTransferCompletes : pjrt::kOnlyDuringCall;
  args.device = device->device;
  PyThreadState* state = later ? PyEval_SaveThread() : nullptr;
  pjrt::Error* error = pjrt_call(*device->plugin, Function::buffer_from_host, args);
  if (state != nullptr) in_python<PyEval_RestoreThread>(state);
  if (error != nullptr) {
    set_pjrt_error(*device->plugin, error, "copy to the device");
    return nullptr;
  }
  if (later) release_after(*device->plugin, args.host_done, buffer_retain(owner));
  else if (args.host_done != nullptr) pjrt_destroy_event(*device->plugin, args.host_done);
  return remote_new(number, args.buffer);
}

Remote* remote_of_array(uint32_t number, Array* array) {
  if (array->remote != nullptr && array->remote->block == nullptr && array->remote->number == number)
    return remote_retain(array->remote);
  if (array->remote != nullptr && array->remote->block == nullptr) {
    Remote* copy = array->remote->memory != nullptr ? copy_between_natives(number, array->remote, array->aval)
                                                    : copy_within_client(number, array->remote);
    if (copy != nullptr || PyErr_Occurred()) return copy;
  }
  Buffer* buffer = array_ready_buffer(array);
  if (buffer == nullptr) return nullptr;
  buffer_retain(buffer);  // the array may be deleted meanwhile
  Remote* remote = remote_from_host(number, array->aval, buffer->data, buffer);
  buffer_release(buffer);
  return remote;
}

Buffer* array_absent_buffer(Array* array) {
  if (array->remote == nullptr) {
    set_deleted_error(array);
    return nullptr;
  }
  Remote* remote = remote_retain(array->remote);
  Buffer* host = host_copy(remote, array->aval);
  bool still_there = array->remote == remote;
  if (!still_there && host != nullptr) set_deleted_error(array);
  remote_release(remote);
  return still_there ? host : nullptr;
}

int remote_is_ready(Remote* remote) {
  if (remote->block != nullptr) return buffer_is_ready(remote->block);
  if (remote->memory != nullptr) return buffer_is_ready(remote->memory);
  if (remote->ready) return 1;
  if (refuse_after_fork()) return -1;
  pjrt::Event* event = ready_event(remote);
  if (event == nullptr) {
    PyErr_Clear();  // whoever uses the array sees it
    return 1;
  }
  const Plugin& plugin = *device_of(remote).plugin;
  bool ready = pjrt_is_ready(plugin, event);
  pjrt_destroy_event(plugin, event);
  return ready;
}

int remote_block(Remote* remote) {
  if (Buffer* own = remote->block != nullptr ? remote->block : remote->memory) {
    Buffer* block = buffer_retain(own);  // the array may be deleted meanwhile
    int status = buffer_wait(block);
    buffer_release(block);
    return status;
  }
  if (remote->ready) return 0;
  if (refuse_after_fork()) return -1;
  pjrt::Event* event = ready_event(remote);
  if (event == nullptr) return -1;
  const Plugin& plugin = *device_of(remote).plugin;
  remote_retain(remote);
  int status = pjrt_wait(plugin, event, "program");
  if (status == kInterrupted) pjrt_destroy_event(plugin, event);
  if (status == 0) remote->ready = true;
  remote_release(remote);
  return status;
}

int register_pjrt_arrays(PyObject* module) { return PyModule_AddFunctions(module, kFunctions); }

}  // namespace weft
