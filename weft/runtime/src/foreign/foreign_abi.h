// The C interface between a runtime and a foreign function: structs of fixed layout, version 0.3.
//
// Functions that users compile against XLA's headers xla/ffi/api/c_api.h (major 0, minor 3) read and write these. The
// layouts are those of that version; the names are weft's own. A struct begins with its size, so that both sides can see
// which fields the other knows: `end_of` the last field is that size, without the padding after it. Numbers of dtypes are
// those of weft/effects/foreign_calls.py.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft::foreign {

constexpr int kMajor = 0, kMinor = 3;

template <class Struct, class Field>
size_t end_of(Field Struct::*last) {
  alignas(Struct) static char room[sizeof(Struct)] = {};
  const Struct* at = reinterpret_cast<const Struct*>(room);
  return size_t(reinterpret_cast<const char*>(&(at->*last)) - room) + sizeof(Field);
}

enum Stage : int32_t { kInstantiate, kPrepare, kInitialize, kExecute, kStages };
enum AttributeType : int32_t { kArray = 1, kDictionary = 2, kScalar = 3, kString = 4 };
enum Code : int32_t {
  kOk, kCancelled, kUnknown, kInvalidArgument, kDeadlineExceeded, kNotFound, kAlreadyExists, kPermissionDenied,
  kResourceExhausted, kFailedPrecondition, kAborted, kOutOfRange, kUnimplemented, kInternal, kUnavailable, kDataLoss,
  kUnauthenticated, kCodes
};

struct Extension {
  size_t struct_size;
  int32_t type;  // 1: of metadata
  Extension* next;
};

struct Version {
  size_t struct_size;
  Extension* extension;
  int major, minor;
};

struct Array {  // an operand or a result
  size_t struct_size;
  Extension* extension;
  int32_t dtype;
  void* data;
  int64_t rank;
  int64_t* extents;
};

struct Span {
  const char* data;
  size_t length;
};

struct ScalarAttribute {
  int32_t dtype;
  void* value;
};

struct ArrayAttribute {
  int32_t dtype;
  size_t size;
  void* data;
};

struct List {  // operands, or results
  size_t struct_size;
  Extension* extension;
  int64_t size;
  int32_t* types;  // 1: an Array
  void** items;
};

struct Attributes {  // sorted by name
  size_t struct_size;
  Extension* extension;
  int64_t size;
  int32_t* types;
  Span** names;
  void** items;
};

struct Error;    // of foreign_api.cpp
struct Future;   // likewise
struct Context;  // of foreign.h
struct Api;

struct Call {
  size_t struct_size;
  Extension* extension;
  const Api* api;
  Context* context;
  int32_t stage;
  List operands;
  List results;
  Attributes attributes;
  Future* future;  // out
};

using Handler = Error*(Call*);

struct TypeId {
  int64_t number;  // 0: none yet
};

struct TypeInfo {
  size_t struct_size;
  Extension* extension;
  void (*deleter)(void*);
};

struct Metadata {
  size_t struct_size;
  Version version;
  uint32_t traits;
  TypeId state_type;
};

struct MetadataExtension {
  Extension base;
  Metadata* metadata;
};

struct Bundle {
  Handler* stages[kStages];  // only the last must be there
};

// Arguments of the functions of Api, in its order.

struct ErrorCreate {
  size_t struct_size;
  Extension* extension;
  const char* message;
  int32_t code;
};

struct ErrorMessage {
  size_t struct_size;
  Extension* extension;
  Error* error;
  const char* message;  // out
};

struct ErrorDestroy {
  size_t struct_size;
  Extension* extension;
  Error* error;
};

struct HandlerRegister {
  size_t struct_size;
  Extension* extension;
  Span name, platform;
  Bundle bundle;
  uint32_t traits;
};

struct StreamGet {
  size_t struct_size;
  Extension* extension;
  Context* context;
  void* stream;  // out
};

struct TypeRegister {
  size_t struct_size;
  Extension* extension;
  Span name;
  TypeId* type;  // in and out
  const TypeInfo* info;
};

struct ContextGet {
  size_t struct_size;
  Extension* extension;
  Context* context;
  TypeId* type;
  void* data;  // out
};

struct StateSet {  // and get, where `state` is an out
  size_t struct_size;
  Extension* extension;
  Context* context;
  int32_t stage;
  TypeId* type;
  void* state;
};

struct MemoryAllocate {
  size_t struct_size;
  Extension* extension;
  Context* context;
  size_t size, alignment;
  void* data;  // out
};

struct MemoryFree {
  size_t struct_size;
  Extension* extension;
  Context* context;
  size_t size;
  void* data;
};

struct PoolSchedule {
  size_t struct_size;
  Extension* extension;
  Context* context;
  void (*task)(void*);
  void* data;
};

struct PoolThreads {
  size_t struct_size;
  Extension* extension;
  Context* context;
  int64_t* threads;  // out
};

struct FutureCreate {
  size_t struct_size;
  Extension* extension;
  Future* future;  // out
};

struct FutureAvailable {
  size_t struct_size;
  Extension* extension;
  Future* future;
};

struct FutureError {
  size_t struct_size;
  Extension* extension;
  Future* future;
  Error* error;  // taken over
};

struct RunGet {
  size_t struct_size;
  Extension* extension;
  Context* context;
  int64_t run;  // out
};

struct OrdinalGet {
  size_t struct_size;
  Extension* extension;
  Context* context;
  int32_t ordinal;  // out
};

struct Api {
  size_t struct_size;
  Extension* extension;
  Version version;
  const void* internal;  // of no use to functions of users
  Error* (*error_create)(ErrorCreate*);
  void (*error_message)(ErrorMessage*);
  void (*error_destroy)(ErrorDestroy*);
  Error* (*handler_register)(HandlerRegister*);
  Error* (*stream_get)(StreamGet*);
  Error* (*type_register)(TypeRegister*);
  Error* (*context_get)(ContextGet*);
  Error* (*state_set)(StateSet*);
  Error* (*state_get)(StateSet*);
  Error* (*memory_allocate)(MemoryAllocate*);
  Error* (*memory_free)(MemoryFree*);
  Error* (*pool_schedule)(PoolSchedule*);
  Error* (*pool_threads)(PoolThreads*);
  Error* (*future_create)(FutureCreate*);
  Error* (*future_available)(FutureAvailable*);
  Error* (*future_error)(FutureError*);
  Error* (*run_get)(RunGet*);
  Error* (*ordinal_get)(OrdinalGet*);
};

}  // namespace weft::foreign
