// Matrix products of a vector and a matrix.
#include <unistd.h>

#include <cstdio>

#include "gemm_step.h"

namespace weft {

namespace {

constexpr int64_t kVectorBytesOfTask = 128 << 10;
constexpr int kWideBytes = 64;        // bytes of the vectors that kernels of strips of lanes are built for
constexpr int64_t kRowsTurned = 64;   // rows that are turned into columns at a time
constexpr int64_t kRowsTogether = 8;  // contiguous ones
constexpr int64_t kFetchedPast = 1280;  // bytes of a complex column from where on what is fetched past its end is little

// Bytes of a cache of this level, of those that hold data, or 0 if the system does not say.
double cache_bytes(int wanted) {
  for (int index = 0; index < 8; ++index) {
    const auto read = [&](const char* name, const char* format, auto* value) {
      char path[80];
      std::snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu0/cache/index%d/%s", index, name);
      std::FILE* file = std::fopen(path, "r");
      if (file == nullptr) return false;
      const bool found = std::fscanf(file, format, value) == 1;
      std::fclose(file);
      return found;
    };
    int level = 0, kilobytes = 0;
    if (!read("level", "%d", &level)) break;
    if (level == wanted && read("size", "%dK", &kilobytes)) return double(kilobytes) * 1024;
  }
#if defined(_SC_LEVEL2_CACHE_SIZE)
  if (wanted == 2) return std::max(0.0, double(sysconf(_SC_LEVEL2_CACHE_SIZE)));
#endif
  return 0;
}

double second_cache() {
  static const double bytes = cache_bytes(2);
  return bytes;
}

double third_cache() {
  static const double bytes = cache_bytes(3);
  return bytes;
}

}  // namespace

// A vector and a matrix: bound by memory.

// Whether a matrix of contiguous columns, with the others of its batch, is one to read in strips of lanes: caches are likely
// to hold it.
bool GemmStep::may_be_in_strips() const {
  if (kernels->lanes * kernels->source_bytes != kWideBytes || !figures.in_strips || matrix_row() != 1) return false;
  const double share = is_complex() ? figures.complex_strips_held : figures.strips_held;
  const double most = std::max(second_cache(), third_cache() * share);
  return double(batch.count) * matrix_bytes() <= most;
}

// A matrix that the second cache nearly holds, read from one end to the other again and again, has always just lost what
// comes next. Every other run of a step reads it from its other end, and finds there what the last one left. Chains are
// added as before, in another order of rows or of chains: the bits are the same. Tiles of columns, and tasks, are turned
// however large the matrix is: the third cache may hold it in part.
void GemmStep::look_at_cache(Job* job) const {
  const double bytes = matrix_bytes() / job->threads, cache = second_cache();
  job->far = cache > 0 && bytes > figures.nearly_held * cache;
  const bool short_columns = is_complex() && matrix_row() == 1 && column_bytes() < kFetchedPast;
  job->turned = job->far && bytes <= figures.most_held * cache && !short_columns;
  job->backwards = job->far && turns.fetch_add(1, std::memory_order_relaxed) % 2 != 0;
}

void GemmStep::multiply_vector(const Product& product) const {
  const int64_t rows = std::max(m, n), item = kernels->source_bytes, threads = product.job->threads;
  const int64_t most = std::clamp<int64_t>(rows * k * item / kVectorBytesOfTask, 1, 1 << 20);
  int64_t size = rows;
  if (threads > 1 && most > 1) {
    // long pieces of contiguous columns, but enough tasks; otherwise blocks of k
    const int64_t least = matrix_row() != 1 ? 8 : rows * k * item > figures.large_bytes ? 512 : 128;
    if (rows < 2 * least * threads && k >= 2 * depth_of_block() * threads) return multiply_deep(product);
    size = up(std::max(pieces_of(rows, std::min(most, 4 * threads)), least), matrix_row() != 1 ? kRowsTogether : 64);
  } else if (product.job->turned && matrix_row() != 1) {
    size = kRowsTurned;
  }
  // the caller begins with the first tasks and workers with the last ones: each turns within its own
  const int64_t tasks = pieces_of(rows, size), own = pieces_of(tasks, threads), y_row = n == 1 ? c_row : 1;
  each(product, tasks, [&](int64_t task) {
    const int64_t turned = task < own ? own - 1 - task : tasks - 1 - (task - own), depth = depth_of_block();
    const int64_t first = (product.job->backwards ? turned : task) * size, count = std::min(size, rows - first);
    for (int64_t k0 = 0; k0 < k; k0 += depth)
      vector_block(product, first, count, k0, std::min(depth, k - k0), product.c + first * y_row * kernels->result_bytes,
                   y_row, k0 > 0);
  });
  finish_all(product);
}

}  // namespace weft
