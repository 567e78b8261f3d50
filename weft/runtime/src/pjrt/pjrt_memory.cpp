// The memory of devices shared with others: an Array's as a Buffer, and somebody's as an Array's.
#include "module.h"
#include "pjrt.h"

namespace weft {

using pjrt::Function;

namespace {

const PluginDevice& device_of(const Remote* remote) { return *plugin_devices()[remote->number]; }

template <class Args>
pjrt::Error* about_buffer(Remote* remote, Function entry, Args& args) {
  args.buffer = remote->handle;
  return pjrt_call(*device_of(remote).plugin, entry, args);
}

// True if there was no error; otherwise it is destroyed, and set unless the plugin says that it does not do this.
bool succeeded(const Plugin& plugin, pjrt::Error* error, const char* what) {
  if (error == nullptr) return true;
  bool unknown = pjrt_code(plugin, error) == kUnimplemented;
  set_pjrt_error(plugin, error, what);
  if (unknown) PyErr_Clear();
  return false;
}

// Whether the elements lie in row-major order; false with an error set if the plugin failed.
bool is_row_major(const Plugin& plugin, Remote* remote) {
  pjrt::BufferLayoutArgs args{};
  if (!succeeded(plugin, about_buffer(remote, Function::buffer_layout, args), "layout")) return false;
  const pjrt::TiledLayout& order = args.layout.tiled;
  if (args.layout.kind != 0 || order.tile_count != 0) return false;
  for (size_t i = 0; i < order.minor_to_major_size; ++i)
    if (order.minor_to_major[i] != int64_t(order.minor_to_major_size - 1 - i)) return false;
  return true;
}

// The release of a Buffer on a device's memory: any thread. `owner` is the Remote.
void let_go(void* owner) {
  if (!Py_IsInitialized() || is_forked_child()) return;  // the memory stays until the process ends
  PyGILState_STATE state = in_python<PyGILState_Ensure>();
  auto* remote = static_cast<Remote*>(owner);
  pjrt::BufferArgs args{};
  pjrt::Error* error = about_buffer(remote, Function::buffer_let_go, args);
  if (error != nullptr) report_pjrt_error(*device_of(remote).plugin, error, "release of shared memory");
  remote_release(remote);
  PyGILState_Release(state);
}

// The plugin's callback when it is done with memory that it was lent: any thread, no GIL.
void give_back(void* address, void* owner) {
  (void)address;
  buffer_release(static_cast<Buffer*>(owner));
}

}  // namespace

Buffer* remote_memory(Remote* remote, ShapedArray* aval) {
  if (refuse_after_fork()) return nullptr;
  if (remote->memory != nullptr) return nullptr;
  const Plugin& plugin = *device_of(remote).plugin;
  for (Function entry :
       {Function::buffer_layout, Function::buffer_hold, Function::buffer_let_go, Function::buffer_address})
    if (!plugin.has(entry)) return nullptr;
  if (remote_block(remote) < 0 || !is_row_major(plugin, remote)) return nullptr;
  pjrt::BufferArgs hold{};
  if (!succeeded(plugin, about_buffer(remote, Function::buffer_hold, hold), "shared memory")) return nullptr;
  pjrt::BufferAddressArgs args{};
  remote_retain(remote);
  bool known = succeeded(plugin, about_buffer(remote, Function::buffer_address, args), "address");
  if (known) {
    Buffer* buffer = buffer_wrap(args.address, aval->nbytes, let_go, remote);
    if (buffer != nullptr) return buffer;
    PyErr_NoMemory();
  }
  let_go(remote);
  return nullptr;
}

Remote* remote_on_memory(uint32_t number, ShapedArray* aval, Buffer* owner) {
  PluginDevice* device = device_of_place(number << 1);
  if (device == nullptr) return nullptr;
  if (device->native != nullptr || !device->plugin->has(Function::view_of_memory)) return nullptr;
  pjrt::ViewOfMemoryArgs args{};
  args.client = device->client;
  args.address = owner->data;
  args.extents = aval->extents;
  args.rank = size_t(aval->ndim);
  args.type = element_type(aval);
  if (args.type == pjrt::kInvalid) return nullptr;
  int64_t minor_to_major[kMaxRank + 1];
  for (int i = 0; i < aval->ndim; ++i) minor_to_major[i] = aval->ndim - 1 - i;
  pjrt::Layout layout{};
  layout.struct_size = sizeof layout;
  layout.tiled.struct_size = sizeof layout.tiled;
  layout.tiled.minor_to_major = minor_to_major;
  layout.tiled.minor_to_major_size = size_t(aval->ndim);
  args.layout = &layout;
  args.device = device->device;
  args.on_delete = give_back;
  args.argument = buffer_retain(owner);
  pjrt::Error* error = pjrt_call(*device->plugin, Function::view_of_memory, args);
  if (!succeeded(*device->plugin, error, "memory of others")) {
    buffer_release(owner);
    return nullptr;
  }
  Remote* made = remote_new(number, args.buffer);
  made->lent = true;
  return made;
}

namespace {

// array_lent(array, place) -> Array on the same memory, or None if the device is not one of the host, or takes none.
PyObject* array_lent(PyObject*, PyObject* args) {
  PyObject* object;
  unsigned int place;
  if (!PyArg_ParseTuple(args, "O!I:array_lent", ArrayType, &object, &place)) return nullptr;
  auto* array = reinterpret_cast<Array*>(object);
  PluginDevice* device = device_of_place(place);
  if (device == nullptr) return nullptr;
  Buffer* buffer = array_ready_buffer(array);
  if (buffer == nullptr) return nullptr;
  if (array->remote != nullptr || device->memory_type != kHostMemory || array->aval->nbytes <= 0) Py_RETURN_NONE;
  Remote* remote = remote_on_memory(device_number(place), array->aval, buffer);
  if (remote != nullptr) return reinterpret_cast<PyObject*>(array_new_remote(array->aval, remote, place));
  if (PyErr_Occurred()) return nullptr;
  Py_RETURN_NONE;
}

PyMethodDef kFunctions[] = {
    {"array_lent", entry_point<array_lent>, METH_VARARGS,
     "array_lent(array, place) -> Array of a device on the memory of one of the host, or None if it takes none."},
    {},
};

}  // namespace

int register_pjrt_memory(PyObject* module) { return PyModule_AddFunctions(module, kFunctions); }

}  // namespace weft
