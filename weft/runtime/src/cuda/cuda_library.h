// Matrix products by NVIDIA's library (cuBLASLt), which is opened where its package is installed; no header of it is needed.
//
// The library has matrices by columns. What is a = [rows, terms], b = [terms, columns] and d = [rows, columns] by rows
// here, is the product of the transposed b by the transposed a there, whose result is the transposed d: nothing moves.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cuda_device.h"

namespace weft::cuda {

// Types of elements, by the library's numbers.
enum LibraryType : int64_t { kFloat32 = 0, kFloat64 = 1, kFloat16 = 2, kBfloat16 = 14 };
inline int64_t bytes_of(int64_t type) { return type == kFloat64 ? 8 : type == kFloat32 ? 4 : 2; }

// A matrix as the library sees it.
struct LibraryMatrix {
  int64_t turned;  // whether its transpose is multiplied
  int64_t rows, columns;
  int64_t step;   // elements from a column to the next
  int64_t apart;  // elements from a matrix of a batch to the next
};

// All that tells one product from another but for addresses: plain words, so that it is a key.
struct LibraryProblem {
  int64_t type, result_type;  // LibraryType
  int64_t compute, scale;     // how sums are made, and the LibraryType of factors
  int64_t epilogue;
  int64_t batch;
  LibraryMatrix left, right, result;
};


struct LibraryOperands {
  char *left, *right, *result, *bias;  // bias: nullptr if there is none
};

// What one GPU asks of the library. Answers are kept as long as the process lives.
class LibraryProducts {
 public:
  static LibraryProducts& of(CudaDevice& device);

  // Whether the library multiplies so, whatever the addresses: where nothing is aligned beyond its elements.
  Status ask(const LibraryProblem& problem, bool* found);
  Status multiply(const LibraryProblem& problem, const LibraryOperands& operands, const char* where);

 private:
  struct Descriptors;

  // The algorithm that the library's heuristic names first. The words of a call: addresses of left, right, result, bias
  // and workspace.
  struct Answer final : LibraryCall {
    LibraryProducts* all = nullptr;
    const Descriptors* of = nullptr;
    bool found = false;
    uint64_t algorithm[8] = {};
    size_t workspace = 0;

    Status ask(const int64_t* words, Handle stream, const char* where) const override;
  };

  struct Descriptors {  // of a problem
    void *product = nullptr, *left = nullptr, *right = nullptr, *result = nullptr;  // objects of the library
    int64_t scale = 0;
    std::map<std::array<int64_t, 3>, Answer> answers;  // by how left, right and result are aligned
  };

  explicit LibraryProducts(CudaDevice& device) : device_(device) {}
  Status start();                                                      // with the lock
  Status described(const LibraryProblem& problem, Descriptors** out);  // with the lock
  Status answer(Descriptors& known, const int64_t* aligned, const Answer** out);  // with the lock
  Status answer_for(Descriptors& known, const LibraryProblem& problem, const LibraryOperands& operands,
                    const Answer** out);  // with the lock
  Status check(int status, const char* what, const char* where = "");

  CudaDevice& device_;
  std::mutex mutex_;  // guards
  void* handle_ = nullptr;
  std::map<std::vector<int64_t>, std::unique_ptr<Descriptors>> known_;
};

// Opens the library, once for all: its version (120901 is 12.9.1), or 0 with the reason. It is asked for nothing else.
int open_library_of_products(const char* path, std::string* reason);

}  // namespace weft::cuda
