// The caching allocator: per-thread free lists for small blocks, one bounded list for large ones.
//
// A block of up to 64 KiB comes from malloc and is kept in a list of its thread. A larger block is its own mapping
// (huge pages where possible); all retained ones together are bounded, and the one freed longest ago is dropped first.
// So a program that allocates the same sizes again and again makes no system call and takes no page fault.
#include "buffer.h"

#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>

#include "cgroup.h"
#include "device.h"
#include "figures.h"
#include "module.h"

namespace weft {
namespace {

constexpr int64_t kHeaderBytes = sizeof(Buffer);
constexpr int64_t kSmallBytes = 64 << 10;
constexpr int64_t kHugePage = 2 << 20;
constexpr int64_t kThreadListBytes = 512 << 10;  // kept per size class and thread
constexpr int kThreadListBlocks = 256;
constexpr int64_t kCountFlush = 1 << 20;  // each thread counts its small blocks and reports in steps of this
constexpr int kSmallClasses = 36;
constexpr int kClasses = 232;

// ---- size classes: multiples of 64 up to 512, then four per doubling (at most a quarter is wasted) ----

int class_of(int64_t nbytes) {
  if (nbytes <= 512) return nbytes <= 64 ? 0 : static_cast<int>((nbytes - 1) >> 6);
  int log = 63 - __builtin_clzll(static_cast<uint64_t>(nbytes - 1));  // >= 9
  return 8 + (log - 9) * 4 + static_cast<int>(((nbytes - 1) >> (log - 2)) & 3);
}

int64_t class_capacity(int size_class) {
  if (size_class < 8) return (size_class + 1) * int64_t{64};
  int log = 9 + (size_class - 8) / 4;
  return (int64_t{1} << log) + (((size_class - 8) % 4) + 1) * (int64_t{1} << (log - 2));
}

// ---- limits ----

int64_t physical_bytes() { return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE); }

// The memory limit of our control groups, or `otherwise` if that is less.
int64_t cgroup_bytes(int64_t otherwise) {
  int64_t bytes = cgroup_limits().bytes;
  return bytes > 0 ? std::min(otherwise, bytes) : otherwise;
}

// WEFT_MEMORY_LIMIT as bytes, with an optional suffix K, M, G or T; 0 if unset, -1 if it cannot be parsed.
int64_t limit_from_environment() {
  const char* text = std::getenv("WEFT_MEMORY_LIMIT");
  if (text == nullptr || *text == 0) return 0;
  char* end = nullptr;
  double value = std::strtod(text, &end);
  if (end != text && *end != 0) {
    double unit = 1;
    for (const char* suffix = "KMGT"; *suffix != 0; ++suffix) {
      unit *= 1024;
      if ((*end & ~0x20) != *suffix) continue;
      value *= unit;
      ++end;
      break;
    }
  }
  return end != text && *end == 0 && value >= 1 ? static_cast<int64_t>(std::min(value, 9e18)) : -1;
}

// Links of a retained large block, stored in its data area (which has at least 64 KiB).
struct Links {
  Buffer* class_next;
  Buffer* older;
  Buffer* newer;
};
Links* links(Buffer* buffer) { return reinterpret_cast<Links*>(buffer->data); }

PyObject* g_memory_error = nullptr;  // owned

struct ThreadCache;

// Everything shared between threads. Never destroyed: threads may outlive static destructors.
struct Shared {
  std::mutex mutex;
  ThreadCache* caches = nullptr;  // of the running threads, borrowed
  Buffer* large[kClasses] = {};
  Buffer* oldest = nullptr;
  Buffer* newest = nullptr;
  int64_t retained_bytes = 0;
  int64_t retain_limit = 0;
  int64_t limit = 0;
  bool limit_is_users = false;
  std::atomic<int64_t> live_bytes{0};  // large blocks are counted exactly, small ones to within kCountFlush per thread
  std::atomic<int64_t> mappings_made{0};  // large blocks taken from the system since the process started
};

Shared& shared() {
  static Shared* instance = [] {
    auto* made = new Shared;
    int64_t memory = cgroup_bytes(physical_bytes());
    int64_t users = limit_from_environment();
    made->limit = users > 0 ? users : memory;
    made->limit_is_users = users > 0;
    made->retain_limit = std::min<int64_t>({made->limit / 4, memory / 8, int64_t{2} << 30});
    pthread_atfork([] { shared().mutex.lock(); }, [] { shared().mutex.unlock(); }, [] { shared().mutex.unlock(); });
    return made;
  }();
  return *instance;
}

// ---- small blocks ----

struct ThreadCache {
  Buffer* head[kSmallClasses] = {};
  int32_t count[kSmallClasses] = {};
  std::atomic<int64_t> uncounted_bytes{0};  // written by its thread only
  ThreadCache* next;
  ThreadCache* previous = nullptr;

  ThreadCache();
  ~ThreadCache();
};

ThreadCache::ThreadCache() {
  Shared& all = shared();
  std::lock_guard<std::mutex> lock(all.mutex);
  next = all.caches;
  if (next != nullptr) next->previous = this;
  all.caches = this;
}

// Read on every call, so it uses the fastest model of thread-local storage; its owner only runs the destructor.
__attribute__((tls_model("initial-exec"))) thread_local ThreadCache* thread_cache = nullptr;
__attribute__((tls_model("initial-exec"))) thread_local bool thread_is_ending = false;

ThreadCache::~ThreadCache() {
  for (Buffer*& list : head)
    while (list != nullptr) {
      Buffer* next = static_cast<Buffer*>(list->owner);
      std::free(list);
      list = next;
    }
  Shared& all = shared();
  std::lock_guard<std::mutex> lock(all.mutex);
  all.live_bytes.fetch_add(uncounted_bytes.load(), std::memory_order_relaxed);
  (previous ? previous->next : all.caches) = next;
  if (next != nullptr) next->previous = previous;
}

struct ThreadCacheOwner {
  ThreadCache* cache = nullptr;
  ~ThreadCacheOwner() {
    thread_is_ending = true;
    thread_cache = nullptr;
    delete cache;
  }
};
thread_local ThreadCacheOwner thread_cache_owner;

__attribute__((noinline)) ThreadCache* make_cache() {
  if (!thread_is_ending) {
    thread_cache = new (std::nothrow) ThreadCache;
    thread_cache_owner.cache = thread_cache;
  }
  return thread_cache;
}

// Borrowed cache of this thread, or nullptr while the thread is ending or memory is out.
inline ThreadCache* my_cache() {
  ThreadCache* cache = thread_cache;
  return __builtin_expect(cache != nullptr, 1) ? cache : make_cache();
}

void count_small(ThreadCache* cache, int64_t bytes) {
  if (cache == nullptr) {
    shared().live_bytes.fetch_add(bytes, std::memory_order_relaxed);
    return;
  }
  int64_t total = cache->uncounted_bytes.load(std::memory_order_relaxed) + bytes;
  if (total > kCountFlush || total < -kCountFlush) {
    shared().live_bytes.fetch_add(total, std::memory_order_relaxed);
    total = 0;
  }
  cache->uncounted_bytes.store(total, std::memory_order_relaxed);
}

[[maybe_unused]] Buffer* allocate_small(int size_class) noexcept {
  ThreadCache* cache = my_cache();
  Buffer* buffer;
  if (cache != nullptr && cache->head[size_class] != nullptr) {
    buffer = cache->head[size_class];
    Buffer* next = static_cast<Buffer*>(buffer->owner);
    if (next != nullptr) __builtin_prefetch(next, 1);  // a program with many small outputs allocates it next
    cache->head[size_class] = next;
    --cache->count[size_class];
  } else {
    Shared& all = shared();
    int64_t capacity = class_capacity(size_class);
    if (all.live_bytes.load(std::memory_order_relaxed) + capacity > all.limit) return nullptr;
    buffer = static_cast<Buffer*>(std::aligned_alloc(kAlignment, kHeaderBytes + capacity));
    if (buffer == nullptr) return nullptr;
    buffer->size_class = static_cast<int16_t>(size_class);
    buffer->data = reinterpret_cast<char*>(buffer) + kHeaderBytes;
    buffer->capacity = capacity;
  }
  count_small(cache, buffer->capacity);
  return buffer;
}

[[maybe_unused]] void free_small(Buffer* buffer) noexcept {
  ThreadCache* cache = my_cache();
  int size_class = buffer->size_class;
  count_small(cache, -buffer->capacity);
  if (cache == nullptr || cache->count[size_class] >= kThreadListBlocks ||
      cache->count[size_class] * buffer->capacity >= kThreadListBytes) {
    std::free(buffer);
    return;
  }
  buffer->owner = cache->head[size_class];
  cache->head[size_class] = buffer;
  ++cache->count[size_class];
}

// ---- large blocks ----

int64_t mapping_bytes(int64_t capacity) { return (kHeaderBytes + capacity + kPage - 1) & ~(kPage - 1); }

void unmap(Buffer* buffer) noexcept { munmap(static_cast<void*>(buffer), mapping_bytes(buffer->capacity)); }

// A new mapping. A large one is aligned to 2 MiB and asks for huge pages.
Buffer* map_block(int64_t capacity) noexcept {
  int64_t bytes = mapping_bytes(capacity);
  bool huge = bytes >= kHugePage;
  int64_t reserve = huge ? bytes + kHugePage : bytes;
  void* raw = mmap(nullptr, reserve, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  auto start = reinterpret_cast<uintptr_t>(raw);
  if (huge) {
    uintptr_t aligned = (start + kHugePage - 1) & ~uintptr_t(kHugePage - 1);
    if (aligned > start) munmap(raw, aligned - start);
    uintptr_t end = start + reserve;
    if (end > aligned + bytes) munmap(reinterpret_cast<void*>(aligned + bytes), end - aligned - bytes);
    start = aligned;
    madvise(reinterpret_cast<void*>(start), bytes, MADV_HUGEPAGE);
  }
  return reinterpret_cast<Buffer*>(start);
}

// Takes a retained block out of the least-recently-freed chain. Lock held.
void unlink_retained(Shared& all, Buffer* buffer) {
  Links* own = links(buffer);
  (own->older ? links(own->older)->newer : all.oldest) = own->newer;
  (own->newer ? links(own->newer)->older : all.newest) = own->older;
  all.retained_bytes -= buffer->capacity;
}

// Owned list (linked by class_next) of retained blocks that were removed so that at most `keep` bytes remain. Lock
// held.
Buffer* drop_retained(Shared& all, int64_t keep) {
  Buffer* dropped = nullptr;
  while (all.retained_bytes > keep && all.oldest != nullptr) {
    Buffer* victim = all.oldest;
    Buffer** slot = &all.large[victim->size_class];
    while (*slot != victim) slot = &links(*slot)->class_next;
    *slot = links(victim)->class_next;
    unlink_retained(all, victim);
    links(victim)->class_next = dropped;
    dropped = victim;
  }
  return dropped;
}

void unmap_chain(Buffer* chain) noexcept {
  while (chain != nullptr) {
    Buffer* next = links(chain)->class_next;
    unmap(chain);
    chain = next;
  }
}

[[maybe_unused]] Buffer* allocate_large(int size_class) noexcept {
  Shared& all = shared();
  int64_t capacity = class_capacity(size_class);
  Buffer* dropped = nullptr;
  {
    std::lock_guard<std::mutex> lock(all.mutex);
    if (Buffer* found = all.large[size_class]) {
      all.large[size_class] = links(found)->class_next;
      unlink_retained(all, found);
      all.live_bytes.fetch_add(capacity, std::memory_order_relaxed);
      return found;
    }
    int64_t live = all.live_bytes.load(std::memory_order_relaxed);
    if (capacity > all.limit - live) return nullptr;
    dropped = drop_retained(all, all.limit - live - capacity);
    all.live_bytes.fetch_add(capacity, std::memory_order_relaxed);
  }
  unmap_chain(dropped);
  Buffer* buffer = map_block(capacity);
  if (buffer == nullptr) {  // no memory: release every retained block and try once more
    {
      std::lock_guard<std::mutex> lock(all.mutex);
      dropped = drop_retained(all, 0);
    }
    unmap_chain(dropped);
    buffer = map_block(capacity);
  }
  if (buffer == nullptr) {
    all.live_bytes.fetch_sub(capacity, std::memory_order_relaxed);
    return nullptr;
  }
  all.mappings_made.fetch_add(1, std::memory_order_relaxed);
  buffer->size_class = static_cast<int16_t>(size_class);
  buffer->data = reinterpret_cast<char*>(buffer) + kHeaderBytes;
  buffer->capacity = capacity;
  return buffer;
}

[[maybe_unused]] void free_large(Buffer* buffer) noexcept {
  Shared& all = shared();
  all.live_bytes.fetch_sub(buffer->capacity, std::memory_order_relaxed);
  if (buffer->capacity > all.retain_limit) {
    unmap(buffer);
    return;
  }
  Buffer* dropped;
  {
    std::lock_guard<std::mutex> lock(all.mutex);
    *links(buffer) = {all.large[buffer->size_class], all.newest, nullptr};
    all.large[buffer->size_class] = buffer;
    (all.newest ? links(all.newest)->newer : all.oldest) = buffer;
    all.newest = buffer;
    all.retained_bytes += buffer->capacity;
    dropped = drop_retained(all, all.retain_limit);
  }
  unmap_chain(dropped);
}

#ifdef WEFT_GUARD_BUFFERS
// Sanitizer builds give every buffer its own mapping between two inaccessible pages, fill it with junk, and unmap it as
// soon as it is freed. So an access out of bounds, or a read of memory never written, is found. The buffer ends at the
// page behind it; with WEFT_GUARD=low it begins at the page before it.
constexpr unsigned char kJunk = 0xCB;

int64_t guarded_pages(int64_t capacity) { return (capacity + kPage - 1) & ~(kPage - 1); }

bool guard_low() {
  static const bool low = [] {
    const char* text = std::getenv("WEFT_GUARD");
    return text != nullptr && std::strcmp(text, "low") == 0;
  }();
  return low;
}

Buffer* allocate_guarded(int64_t nbytes) noexcept {
  int64_t capacity = std::max<int64_t>((nbytes + kAlignment - 1) & ~(kAlignment - 1), kAlignment);
  Shared& all = shared();
  if (capacity > all.limit - all.live_bytes.load()) return nullptr;
  int64_t pages = guarded_pages(capacity);
  auto* buffer = static_cast<Buffer*>(std::aligned_alloc(kAlignment, kHeaderBytes));
  void* raw = mmap(nullptr, pages + 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (buffer == nullptr || raw == MAP_FAILED) {
    std::free(buffer);
    if (raw != MAP_FAILED) munmap(raw, pages + 2 * kPage);
    return nullptr;
  }
  char* begin = static_cast<char*>(raw) + kPage;
  mprotect(begin - kPage, kPage, PROT_NONE);
  mprotect(begin + pages, kPage, PROT_NONE);
  buffer->size_class = 0;
  buffer->data = guard_low() ? begin : begin + pages - capacity;
  buffer->capacity = capacity;
  std::memset(buffer->data, kJunk, capacity);
  all.live_bytes.fetch_add(capacity);
  return buffer;
}

void free_guarded(Buffer* buffer) noexcept {
  for (int64_t i = buffer->nbytes; i < buffer->capacity; ++i) {
    if (static_cast<unsigned char>(buffer->data[i]) == kJunk) continue;
    std::fprintf(stderr, "weft: byte %lld of a buffer of %lld bytes was written\n", (long long)i,
                 (long long)buffer->nbytes);
    std::abort();
  }
  int64_t pages = guarded_pages(buffer->capacity);
  char* begin = guard_low() ? buffer->data : buffer->data + buffer->capacity - pages;
  shared().live_bytes.fetch_sub(buffer->capacity);
  munmap(begin - kPage, pages + 2 * kPage);
  std::free(buffer);
}
#endif

// ---- Python ----

PyObject* memory_stats(PyObject*, PyObject*) {
  Shared& all = shared();
  int64_t retained, live;
  {
    std::lock_guard<std::mutex> lock(all.mutex);
    retained = all.retained_bytes;
    live = all.live_bytes.load();
    for (ThreadCache* cache = all.caches; cache != nullptr; cache = cache->next) live += cache->uncounted_bytes.load();
  }
  return Py_BuildValue("{s:L,s:L,s:L,s:L,s:L}", "live_bytes", (long long)live, "retained_bytes", (long long)retained,
                       "retain_limit_bytes", (long long)all.retain_limit, "limit_bytes", (long long)all.limit,
                       "mappings_made", (long long)all.mappings_made.load());
}

PyObject* trim_memory(PyObject*, PyObject*) {
  Shared& all = shared();
  Buffer* dropped;
  {
    std::lock_guard<std::mutex> lock(all.mutex);
    dropped = drop_retained(all, 0);
  }
  unmap_chain(dropped);
#if defined(__GLIBC__)
  Py_BEGIN_ALLOW_THREADS;
  malloc_trim(0);
  Py_END_ALLOW_THREADS;
#endif
  Py_RETURN_NONE;
}

PyObject* set_memory_error_type(PyObject*, PyObject* type) {
  if (!PyExceptionClass_Check(type)) {
    PyErr_SetString(PyExc_TypeError, "[set_memory_error_type] takes an exception class");
    return nullptr;
  }
  Py_XSETREF(g_memory_error, Py_NewRef(type));
  Py_RETURN_NONE;
}

PyObject* has_memory(PyObject*, PyObject* argument) {
  long long nbytes = PyLong_AsLongLong(argument);
  if (nbytes == -1 && PyErr_Occurred()) return nullptr;
  void* raw = mmap(nullptr, size_t(nbytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw != MAP_FAILED) munmap(raw, size_t(nbytes));
  return PyBool_FromLong(raw != MAP_FAILED);
}

PyMethodDef kMethods[] = {
    {"has_memory", has_memory, METH_O, "has_memory(nbytes): whether the system gives this process so much, all at once."},
    {"set_memory_error_type", set_memory_error_type, METH_O,
     "set_memory_error_type(cls): what is raised where memory runs out."},
    {"memory_stats", memory_stats, METH_NOARGS,
     "memory_stats() -> dict of live, retained and limit bytes, and the mappings made since start."},
    {"trim_memory", trim_memory, METH_NOARGS, "trim_memory(): give retained large blocks and free memory of the C library back to the system."},
    {},
};

}  // namespace

Buffer* buffer_allocate(int64_t nbytes) noexcept {
  if (nbytes < 0 || nbytes > (int64_t{1} << 56)) return nullptr;
#ifdef WEFT_GUARD_BUFFERS
  Buffer* buffer = allocate_guarded(nbytes);
#else
  int size_class = class_of(nbytes);
  Buffer* buffer = size_class < kSmallClasses ? allocate_small(size_class) : allocate_large(size_class);
#endif
  if (buffer == nullptr) return nullptr;
  buffer->references.store(1, std::memory_order_relaxed);
  buffer->nbytes = nbytes;
  buffer->pending = nullptr;
  return buffer;
}

Buffer* buffer_wrap(void* data, int64_t nbytes, void (*release_owner)(void*), void* owner) noexcept {
  auto* buffer = static_cast<Buffer*>(std::aligned_alloc(kAlignment, kHeaderBytes));
  if (buffer == nullptr) return nullptr;
  buffer->references.store(1, std::memory_order_relaxed);
  buffer->size_class = kExternal;
  buffer->data = static_cast<char*>(data);
  buffer->nbytes = nbytes;
  buffer->capacity = nbytes;
  buffer->pending = nullptr;
  buffer->release_owner = release_owner;
  buffer->owner = owner;
  return buffer;
}

void buffer_destroy(Buffer* buffer) noexcept {
  if (Event* event = buffer->pending) event->release();
  if (buffer->size_class == kExternal) {
    buffer->release_owner(buffer->owner);
    std::free(buffer);
    return;
  }
  if (buffer->size_class == kOnDevice) {
    device_of(buffer).recycle(buffer);
    std::free(buffer);
    return;
  }
#ifdef WEFT_GUARD_BUFFERS
  free_guarded(buffer);
#else
  buffer->size_class < kSmallClasses ? free_small(buffer) : free_large(buffer);
#endif
}

int buffer_wait_pending(Buffer* buffer) {
  Event* event = buffer->pending;
  event->retain();
  int status = event->wait();
  // Another thread may have cleared it during our wait. The event of a failed task stays, and fails again at the next
  // use.
  if (status == 0 && buffer->pending == event) {
    buffer->pending = nullptr;
    event->release();
  }
  event->release();
  return status;
}

std::string bytes_text(double bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  int unit = 0;
  for (; bytes >= 1024 && unit < 6; ++unit) bytes /= 1024;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", bytes, units[unit]);
  return text;
}

std::string requested_text(int64_t nbytes) {
  return nbytes < 0 ? "more memory"
                    : bytes_text(static_cast<double>(nbytes)) + " (" + std::to_string(nbytes) + " bytes)";
}

std::string memory_error_text(int64_t nbytes, const char* who, const char* what) {
  Shared& all = shared();
  std::string text = std::string("RESOURCE_EXHAUSTED: Out of memory: [") + who + "] ";
  if (*what != 0) text += std::string(what) + ": ";
  return text + requested_text(nbytes) + " requested, " + bytes_text(static_cast<double>(all.live_bytes.load())) + " in use, the limit is " +
         bytes_text(static_cast<double>(all.limit)) +
         (all.limit_is_users ? " (WEFT_MEMORY_LIMIT)" : " (this machine's memory; WEFT_MEMORY_LIMIT sets it)") +
         kMemoryCure;
}

PyObject* set_memory_error_text(const char* text) {
  PyErr_SetString(g_memory_error != nullptr ? g_memory_error : PyExc_MemoryError, text);
  return nullptr;
}

PyObject* set_memory_error(int64_t nbytes, const char* who, const char* what) {
  return set_memory_error_text(memory_error_text(nbytes, who, what).c_str());
}

int register_buffer(PyObject* module) {
  if (limit_from_environment() < 0) {
    PyErr_Format(PyExc_ValueError, "WEFT_MEMORY_LIMIT is a number of bytes with an optional suffix K, M, G or T, got '%s'",
                 std::getenv("WEFT_MEMORY_LIMIT"));
    return -1;
  }
  shared();  // now, so that our fork handler is the first one registered and thus takes its lock last
  static_assert(sizeof(Links) <= kSmallBytes);
  if (class_capacity(class_of(kSmallBytes)) != kSmallBytes || class_of(kSmallBytes) != kSmallClasses - 1) {
    PyErr_SetString(PyExc_SystemError, "[allocate] size classes do not meet at the border of small blocks");
    return -1;
  }
  return PyModule_AddFunctions(module, kMethods);
}

}  // namespace weft
