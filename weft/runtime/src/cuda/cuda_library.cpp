// Opens NVIDIA's library of matrix products and multiplies by it. See cuda_library.h.
#include "cuda_library.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>

namespace weft::cuda {

namespace {

// clang-format off
#define WEFT_LIBRARY_FUNCTIONS(X) \
  X(cublasLtCreate, void**) \
  X(cublasLtMatmulDescCreate, void**, int, int) X(cublasLtMatmulDescSetAttribute, void*, int, const void*, size_t) \
  X(cublasLtMatrixLayoutCreate, void**, int, uint64_t, uint64_t, int64_t) \
  X(cublasLtMatrixLayoutSetAttribute, void*, int, const void*, size_t) \
  X(cublasLtMatmulPreferenceCreate, void**) X(cublasLtMatmulPreferenceDestroy, void*) \
  X(cublasLtMatmulPreferenceSetAttribute, void*, int, const void*, size_t) \
  X(cublasLtMatmulAlgoGetHeuristic, void*, void*, void*, void*, void*, void*, void*, int, void*, int*) \
  X(cublasLtMatmul, void*, void*, const void*, const void*, void*, const void*, void*, const void*, const void*, void*, \
    void*, void*, const void*, void*, size_t, void*)
// clang-format on

// Numbers of the library's enumerations.
constexpr int kOldest = 120000;  // the first version with these records
enum Status_ : int { kFine = 0, kNoMemory = 3, kInvalid = 7, kOtherProcessor = 8, kUnsupported = 15 };
enum Description { kTurnLeft = 3, kTurnRight = 4, kEpilogue = 7, kBias = 8 };
enum Layout { kBatch = 5, kApart = 6 };
enum Preference { kMostWorkspace = 1, kAlignments = 5 };  // of left, right, result before and after, in that order
constexpr int kTurned = 1;

// Working memory that the library's guide advises for large GPUs; it comes from the pool, and goes back at once.
constexpr uint64_t kWorkspaceBytes = 32 << 20;
constexpr int64_t kMostAligned = 256;  // bytes: a greater alignment changes no answer

struct Heuristic {  // cublasLtMatmulHeuristicResult_t
  uint64_t algorithm[8];
  size_t workspace;
  int status;
  float waves;
  int reserved[4];
};

struct Library {
#define WEFT_LIBRARY_POINTER(name, ...) int (*name)(__VA_ARGS__) = nullptr;
  WEFT_LIBRARY_FUNCTIONS(WEFT_LIBRARY_POINTER)
#undef WEFT_LIBRARY_POINTER
  const char* (*cublasLtGetStatusString)(int) = nullptr;  // may lack
  std::string path, reason;
  int version = 0;  // 0: it cannot be used
};

std::unique_ptr<Library> opened(const char* path) {
  auto found = std::make_unique<Library>();
  found->path = path;
  void* handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* text = dlerror();
    found->reason = text == nullptr ? "it cannot be loaded" : text;
    return found;
  }
  const auto version = reinterpret_cast<size_t (*)()>(dlsym(handle, "cublasLtGetVersion"));
  const char* missing = version == nullptr ? "cublasLtGetVersion" : nullptr;
#define WEFT_LIBRARY_FIND(name, ...)                                                        \
  found->name = reinterpret_cast<decltype(found->name)>(dlsym(handle, #name)); \
  if (missing == nullptr && found->name == nullptr) missing = #name;
  WEFT_LIBRARY_FUNCTIONS(WEFT_LIBRARY_FIND)
#undef WEFT_LIBRARY_FIND
  found->cublasLtGetStatusString =
      reinterpret_cast<const char* (*)(int)>(dlsym(handle, "cublasLtGetStatusString"));
  if (missing != nullptr) {
    found->reason = found->path + " has no function " + missing;
  } else if (version() < kOldest) {
    found->reason = found->path + " is of version " + std::to_string(version()) + ", and " + std::to_string(kOldest) +
                    " or later is needed";
  } else {
    found->version = int(version());
  }
  return found;
}

std::mutex g_mutex;  // guards the next two
// Never destroyed: programs may outlive static destructors. Each path is opened once.
std::map<std::string, std::unique_ptr<Library>>* g_libraries = nullptr;
Library* g_library = nullptr;  // the one that is used

const Library& library() { return *g_library; }

int64_t alignment(const char* address) {
  const auto bits = reinterpret_cast<uint64_t>(address);
  return bits == 0 ? kMostAligned : int64_t(std::min<uint64_t>(bits & (~bits + 1), kMostAligned));
}

std::vector<int64_t> words(const LibraryProblem& problem) {
  static_assert(sizeof(LibraryProblem) % sizeof(int64_t) == 0);
  std::vector<int64_t> found(sizeof problem / sizeof(int64_t));
  std::memcpy(found.data(), &problem, sizeof problem);
  return found;
}

}  // namespace

int open_library_of_products(const char* path, std::string* reason) {
  std::lock_guard<std::mutex> lock(g_mutex);
  if (g_libraries == nullptr) g_libraries = new std::map<std::string, std::unique_ptr<Library>>;
  auto& found = (*g_libraries)[path];
  if (found == nullptr) found = opened(path);
  *reason = found->reason;
  if (found->version != 0 && g_library == nullptr) g_library = found.get();
  if (found->version != 0 && g_library != found.get())
    return *reason = "this process multiplies by " + g_library->path + " already", 0;
  return found->version;
}

LibraryProducts& LibraryProducts::of(CudaDevice& device) {
  static auto* all = new std::map<CudaDevice*, std::unique_ptr<LibraryProducts>>;
  std::lock_guard<std::mutex> lock(g_mutex);
  auto& found = (*all)[&device];
  if (found == nullptr) found.reset(new LibraryProducts(device));
  return *found;
}

Status LibraryProducts::check(int status, const char* what, const char* where) {
  if (status == kFine) return Status::ok;
  const auto text = library().cublasLtGetStatusString;
  device_.fails(std::string(what) + " by the library of products: " + (text == nullptr ? "status" : text(status)) + " (" +
                std::to_string(status) + ")" + (*where != 0 ? ", at " : "") + where);
  return Status::device_error;
}

Status LibraryProducts::start() {
  return handle_ != nullptr ? Status::ok : check(library().cublasLtCreate(&handle_), "cublasLtCreate");
}

Status LibraryProducts::described(const LibraryProblem& problem, Descriptors** out) {
  if (Status status = start(); status != Status::ok) return status;
  auto& found = known_[words(problem)];
  if (found != nullptr) return *out = found.get(), Status::ok;
  const Library& own = library();
  auto made = std::make_unique<Descriptors>();
  made->scale = problem.scale;
  Status status = check(own.cublasLtMatmulDescCreate(&made->product, int(problem.compute), int(problem.scale)), "a product");
  const auto describe = [&](int attribute, int32_t value) {
    if (status == Status::ok)
      status = check(own.cublasLtMatmulDescSetAttribute(made->product, attribute, &value, sizeof value), "a product");
  };
  if (problem.left.turned) describe(kTurnLeft, kTurned);
  if (problem.right.turned) describe(kTurnRight, kTurned);
  describe(kEpilogue, int32_t(problem.epilogue));
  const auto lay = [&](const LibraryMatrix& matrix, int64_t type, void** layout) {
    if (status != Status::ok) return;
    status = check(own.cublasLtMatrixLayoutCreate(layout, int(type), uint64_t(matrix.rows), uint64_t(matrix.columns), matrix.step),
                   "a matrix");
    if (problem.batch == 1 || status != Status::ok) return;
    const auto batch = int32_t(problem.batch);
    status = check(own.cublasLtMatrixLayoutSetAttribute(*layout, kBatch, &batch, sizeof batch), "a batch");
    if (status != Status::ok) return;
    status = check(own.cublasLtMatrixLayoutSetAttribute(*layout, kApart, &matrix.apart, sizeof matrix.apart), "a batch");
  };
  lay(problem.left, problem.type, &made->left);
  lay(problem.right, problem.type, &made->right);
  lay(problem.result, problem.result_type, &made->result);
  if (status != Status::ok) return status;  // what was made of it is lost
  found = std::move(made);
  *out = found.get();
  return Status::ok;
}

Status LibraryProducts::answer(Descriptors& known, const int64_t* aligned, const Answer** out) {
  auto [entry, is_new] = known.answers.try_emplace({aligned[0], aligned[1], aligned[2]});
  *out = &entry->second;
  if (!is_new) return Status::ok;
  entry->second.all = this;
  entry->second.of = &known;
  const Library& own = library();
  void* preference = nullptr;
  Status status = check(own.cublasLtMatmulPreferenceCreate(&preference), "a question");
  if (status != Status::ok) return known.answers.erase(entry), status;
  int result = own.cublasLtMatmulPreferenceSetAttribute(preference, kMostWorkspace, &kWorkspaceBytes, sizeof kWorkspaceBytes);
  const int64_t each[] = {aligned[0], aligned[1], aligned[2], aligned[2]};
  for (int i = 0; i < 4 && result == kFine; ++i) {
    const auto bytes = uint32_t(each[i]);
    result = own.cublasLtMatmulPreferenceSetAttribute(preference, kAlignments + i, &bytes, sizeof bytes);
  }
  Heuristic found{};
  int count = 0;
  if (result == kFine)
    result = own.cublasLtMatmulAlgoGetHeuristic(handle_, known.product, known.left, known.right, known.result, known.result,
                                                preference, 1, &found, &count);
  own.cublasLtMatmulPreferenceDestroy(preference);
  const bool refused = result == kUnsupported || result == kInvalid || result == kOtherProcessor;
  if (result != kFine && !refused) {
    known.answers.erase(entry);
    return check(result, "a question");
  }
  entry->second.found = !refused && count > 0 && found.status == kFine && found.workspace <= kWorkspaceBytes;
  std::copy(std::begin(found.algorithm), std::end(found.algorithm), entry->second.algorithm);
  entry->second.workspace = found.workspace;
  return Status::ok;
}

Status LibraryProducts::ask(const LibraryProblem& problem, bool* found) {
  CudaDevice::InContext here(device_);
  std::lock_guard<std::mutex> lock(mutex_);
  Descriptors* known = nullptr;
  if (Status status = described(problem, &known); status != Status::ok) return status;
  const int64_t item = bytes_of(problem.type), aligned[] = {item, item, bytes_of(problem.result_type)};
  const Answer* answered = nullptr;
  Status status = answer(*known, aligned, &answered);
  *found = status == Status::ok && answered->found;
  return status;
}

Status LibraryProducts::answer_for(Descriptors& known, const LibraryProblem& problem, const LibraryOperands& operands,
                                   const Answer** out) {
  const int64_t item = bytes_of(problem.type), least[] = {item, item, bytes_of(problem.result_type)};
  const int64_t aligned[] = {alignment(operands.left), alignment(operands.right), alignment(operands.result)};
  Status status = answer(known, aligned, out);
  return status == Status::ok && !(*out)->found ? answer(known, least, out) : status;  // the answer for any addresses
}

Status LibraryProducts::multiply(const LibraryProblem& problem, const LibraryOperands& operands, const char* where) {
  CudaDevice::InContext here(device_);
  Descriptors* known = nullptr;
  const Answer* answered = nullptr;  // its address does not change
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (Status status = described(problem, &known); status != Status::ok) return status;
    if (Status status = answer_for(*known, problem, operands, &answered); status != Status::ok) return status;
  }
  if (!answered->found) return check(kUnsupported, "a product", where);
  // without the lock: a wait for memory lets other threads run
  Buffer* workspace = answered->workspace == 0 ? nullptr : device_.allocate(int64_t(answered->workspace));
  if (answered->workspace != 0 && workspace == nullptr) return Status::no_memory;
  const char* addresses[] = {operands.left, operands.right, operands.result, operands.bias,
                             workspace == nullptr ? nullptr : workspace->data};
  int64_t words[std::size(addresses)];
  std::ranges::transform(addresses, words, [](const char* each) { return reinterpret_cast<int64_t>(each); });
  const Status status = device_.launch_library(*answered, words, uint32_t(std::size(words)), where);
  if (workspace != nullptr) device_.end_scratch(workspace);
  return status;
}

Status LibraryProducts::Answer::ask(const int64_t* words, Handle stream, const char* where) const {
  std::lock_guard<std::mutex> lock(all->mutex_);
  const Library& own = library();
  void* addresses[5];
  for (int i = 0; i < 5; ++i) addresses[i] = reinterpret_cast<void*>(words[i]);
  const auto& [left, right, result, bias, room] = addresses;
  if (bias != nullptr) {  // an argument of this call, although the library has it among the fields of the product
    const Status status =
        all->check(own.cublasLtMatmulDescSetAttribute(of->product, kBias, &bias, sizeof bias), "a bias");
    if (status != Status::ok) return status;
  }
  const float one = 1, zero = 0;
  const double double_one = 1, double_zero = 0;
  const void* factors[] = {&one, &zero};
  if (of->scale == kFloat64) factors[0] = &double_one, factors[1] = &double_zero;
  return all->check(own.cublasLtMatmul(all->handle_, of->product, factors[0], left, of->left, right, of->right, factors[1],
                                       result, of->result, result, of->result, algorithm, room, workspace, stream),
                    "a product", where);
}

}  // namespace weft::cuda
