// The part of the PJRT C API that weft calls: by it a compiler and runtime for other hardware, loaded from a shared
// library (a plugin), takes programs and arrays.
//
// Source of names, field orders and values: OpenXLA's header xla/pjrt/c/pjrt_c_api.h (Apache-2.0), API 0.81. Written
// anew for what is used here. Every argument struct starts with its size, by which the plugin knows the fields that the
// caller has; a field that the caller does not fill is zero. New functions and fields are only ever added at the end.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft::pjrt {

struct Error;
struct Event;
struct Client;
struct Device;
struct DeviceDescription;
struct DeviceBuffer;
struct Program;     // compiled, not bound to devices
struct Executable;  // loaded on devices
struct Serialized;
struct Memory;
struct Topology;

constexpr int kMajor = 0;
constexpr int kOldestMinor = 40;  // older plugins lay structs out that no maker of hardware ships any more

// Positions of functions in the table.
enum class Function : uint32_t {
  error_destroy = 0,
  error_message = 1,
  error_code = 2,
  plugin_initialize = 3,
  plugin_attributes = 4,
  event_destroy = 5,
  event_is_ready = 6,
  event_error = 7,
  event_on_ready = 9,
  client_create = 10,
  client_platform_name = 12,
  client_process_index = 13,
  client_platform_version = 14,
  client_devices = 15,
  client_compile = 20,
  buffer_from_host = 22,
  description_id = 23,
  description_process_index = 24,
  description_kind = 26,
  description_text = 28,
  device_description = 29,
  device_is_addressable = 30,
  device_local_hardware_id = 31,
  device_default_memory = 33,
  device_memory_stats = 34,
  program_destroy = 40,
  program_output_count = 44,
  program_cost = 46,
  program_optimized = 48,
  program_serialize = 49,
  executable_destroy = 50,
  executable_program = 51,
  executable_execute = 55,
  executable_deserialize = 56,
  buffer_destroy = 58,
  buffer_layout = 63,
  buffer_to_device = 69,
  buffer_to_host = 70,
  buffer_is_on_host = 71,
  buffer_ready_event = 72,
  buffer_hold = 74,
  buffer_let_go = 75,
  buffer_address = 76,
  topology_create = 82,
  topology_destroy = 83,
  topology_platform_name = 84,
  topology_platform_version = 85,
  topology_devices = 86,
  topology_attributes = 88,
  topology_compile = 89,
  buffer_to_memory = 92,
  view_of_memory = 93,
  program_memory = 96,
};

struct Version {
  size_t struct_size;
  void* extensions;
  int major, minor;
};

struct Api {
  size_t struct_size;
  void* extensions;
  Version version;
  void* entries[1];  // as many as struct_size says
};

struct Head {
  size_t struct_size;
  void* extensions;
};

enum class NamedKind : int { text = 0, integer = 1, integers = 2, real = 3, boolean = 4 };

struct NamedValue : Head {
  const char* name;
  size_t name_size;
  NamedKind kind;
  union {
    const char* text;
    int64_t integer;
    const int64_t* integers;
    float real;
    bool boolean;
  };
  size_t value_size;  // elements of a text or list, otherwise 1
};

struct ErrorArgs : Head {
  Error* error;
};
struct ErrorMessageArgs : Head {
  const Error* error;
  const char* message;  // out, as long as the error
  size_t message_size;  // out
};
struct ErrorCodeArgs : Head {
  const Error* error;
  int code;  // out
};
struct PluginAttributesArgs : Head {
  const NamedValue* attributes;  // out, as long as the process
  size_t count;                  // out
};

struct EventArgs : Head {
  Event* event;
};
struct EventIsReadyArgs : Head {
  Event* event;
  bool is_ready;  // out
};
struct EventOnReadyArgs : Head {
  Event* event;
  void (*callback)(Error* error, void* argument);  // owns the error
  void* argument;
};

struct ClientCreateArgs : Head {
  const NamedValue* options;
  size_t option_count;
  void* key_value_get;
  void* key_value_get_argument;
  void* key_value_put;
  void* key_value_put_argument;
  Client* client;  // out
  void* key_value_try_get;
  void* key_value_try_get_argument;
};
struct ClientTextArgs : Head {  // platform name, platform version
  Client* client;
  const char* text;  // out, as long as the client
  size_t text_size;  // out
};
struct ClientProcessIndexArgs : Head {
  Client* client;
  int process_index;  // out
};
struct ClientDevicesArgs : Head {
  Client* client;
  Device* const* devices;  // out, as long as the client
  size_t count;            // out
};

struct ProgramText : Head {
  char* code;
  size_t code_size;
  const char* format;  // "mlir"
  size_t format_size;
};
struct ClientCompileArgs : Head {
  Client* client;
  const ProgramText* program;
  const char* options;  // a serialized CompileOptionsProto
  size_t options_size;
  Executable* executable;  // out
};

struct DescriptionNumberArgs : Head {  // id, process index
  DeviceDescription* description;
  int number;  // out
};
struct DescriptionTextArgs : Head {  // kind, text
  DeviceDescription* description;
  const char* text;  // out
  size_t text_size;  // out
};
struct DeviceDescriptionArgs : Head {
  Device* device;
  DeviceDescription* description;  // out
};
struct DeviceNumberArgs : Head {  // local hardware id
  Device* device;
  int number;  // out
};
struct DeviceFlagArgs : Head {  // is addressable
  Device* device;
  bool flag;  // out
};
struct MemoryFact {
  int64_t value;
  bool is_set;
};
constexpr int kMemoryFacts = 10;
constexpr const char* kMemoryNames[kMemoryFacts] = {
    "peak_bytes_in_use",   "num_allocs",             "largest_alloc_size",       "bytes_limit", "bytes_reserved",
    "peak_bytes_reserved", "bytes_reservable_limit", "largest_free_block_bytes", "pool_bytes",  "peak_pool_bytes",
};
struct DeviceMemoryStatsArgs : Head {
  Device* device;
  int64_t bytes_in_use;            // out
  MemoryFact facts[kMemoryFacts];  // out, in the order of kMemoryNames
};

// Values of element types on devices.
enum ElementType : int {
  kInvalid = 0, kPred, kS8, kS16, kS32, kS64, kU8, kU16, kU32, kU64, kF16, kF32, kF64, kBF16, kC64, kC128
};

enum HostSemantics : int { kOnlyDuringCall = 0, kUntilTransferCompletes = 1 };

struct TiledLayout : Head {
  const int64_t* minor_to_major;
  size_t minor_to_major_size;
  const int64_t* tile_sizes;
  const size_t* tile_ranks;
  size_t tile_count;
};
struct Layout : Head {
  TiledLayout tiled;
  int kind;  // 0: tiled
};

struct BufferFromHostArgs : Head {
  Client* client;
  const void* data;
  int type;
  const int64_t* extents;
  size_t rank;
  const int64_t* byte_strides;  // nullptr: row-major
  size_t stride_count;
  int semantics;
  Device* device;
  void* memory;
  Layout* layout;
  Event* host_done;      // out, owned by the caller
  DeviceBuffer* buffer;  // out
};
struct BufferArgs : Head {
  DeviceBuffer* buffer;
};
struct BufferToHostArgs : Head {
  DeviceBuffer* buffer;
  Layout* layout;  // of the host's memory
  void* data;
  size_t size;
  Event* event;  // out, owned by the caller
};
struct BufferReadyArgs : Head {
  DeviceBuffer* buffer;
  Event* event;  // out, owned by the caller
};

struct DeviceMemoryArgs : Head {
  Device* device;
  Memory* memory;  // out, as long as the device
};
struct BufferToDeviceArgs : Head {
  DeviceBuffer* buffer;
  Device* device;
  DeviceBuffer* copy;  // out
};
struct BufferToMemoryArgs : Head {
  DeviceBuffer* buffer;
  Memory* memory;
  DeviceBuffer* copy;  // out
};
struct BufferLayoutArgs : Head {
  DeviceBuffer* buffer;
  Layout layout;  // out; what it points to is the buffer's
};
struct BufferIsOnHostArgs : Head {
  DeviceBuffer* buffer;
  bool is_on_host;  // out
};
struct BufferAddressArgs : Head {
  DeviceBuffer* buffer;
  void* address;  // out
};
struct ViewOfMemoryArgs : Head {
  Client* client;
  void* address;
  const int64_t* extents;
  size_t rank;
  int type;
  Layout* layout;
  Device* device;
  void (*on_delete)(void* address, void* argument);
  void* argument;
  intptr_t stream;
  DeviceBuffer* buffer;  // out
  Memory* memory;
};

struct TopologyCreateArgs : Head {
  const char* name;
  size_t name_size;
  const NamedValue* options;
  size_t option_count;
  Topology* topology;  // out, owned by the caller
};
struct TopologyArgs : Head {
  Topology* topology;
};
struct TopologyTextArgs : Head {  // platform name, platform version
  const Topology* topology;
  const char* text;  // out, as long as the topology
  size_t text_size;  // out
};
struct TopologyDevicesArgs : Head {
  const Topology* topology;
  DeviceDescription* const* descriptions;  // out, as long as the topology
  size_t count;                            // out
};
struct TopologyAttributesArgs : Head {
  Topology* topology;
  const NamedValue* attributes;  // out, as long as the topology
  size_t count;                  // out
};
struct TopologyCompileArgs : Head {
  const Topology* topology;
  const ProgramText* program;
  const char* options;
  size_t options_size;
  Client* client;    // nullptr: none is needed
  Program* compiled;  // out, owned by the caller
};

struct ProgramArgs : Head {
  Program* program;
};
struct ProgramCostArgs : Head {
  Program* program;
  size_t count;                  // out
  const NamedValue* properties;  // out, as long as the program
};
struct ProgramOptimizedArgs : Head {
  Program* program;
  ProgramText* text;  // its code: nullptr asks for the size, otherwise it is filled
};
constexpr int kMemorySizes = 11;
constexpr const char* kMemorySizeNames[kMemorySizes] = {
    "generated_code_size_in_bytes",      "argument_size_in_bytes",      "output_size_in_bytes",
    "alias_size_in_bytes",               "temp_size_in_bytes",          "host_generated_code_size_in_bytes",
    "host_argument_size_in_bytes",       "host_output_size_in_bytes",   "host_alias_size_in_bytes",
    "host_temp_size_in_bytes",           "peak_memory_in_bytes",
};
struct ProgramMemoryArgs : Head {
  Program* program;
  int64_t sizes[kMemorySizes];  // out, in the order of kMemorySizeNames
};
struct ProgramCountArgs : Head {
  Program* program;
  size_t count;  // out
};
struct ProgramSerializeArgs : Head {
  const Program* program;
  const char* bytes;       // out
  size_t size;             // out
  Serialized* serialized;  // out: owns the bytes
  void (*destroy)(Serialized* serialized);
};
struct ExecutableArgs : Head {
  Executable* executable;
};
struct ExecutableProgramArgs : Head {
  Executable* executable;
  Program* program;  // out, owned by the caller
};
struct ExecutableDeserializeArgs : Head {
  Client* client;
  const char* bytes;
  size_t size;
  Executable* executable;  // out
  const char* options;
  size_t options_size;
};

struct ExecuteOptions : Head {
  void* send_callbacks;
  void* receive_callbacks;
  size_t send_count;
  size_t receive_count;
  int launch_id;
  const int64_t* kept_inputs;  // that must not be donated
  size_t kept_count;
  void* context;
  const char* call_location;
  size_t task_count;
  int* task_ids;
  int64_t* incarnation_ids;
};
struct ExecuteArgs : Head {
  Executable* executable;
  ExecuteOptions* options;
  DeviceBuffer* const* const* arguments;
  size_t device_count;
  size_t argument_count;
  DeviceBuffer** const* outputs;  // filled
  Event** complete_events;
  Device* device;
};

}  // namespace weft::pjrt
