// Small products, whose tiles are listed once for all of a batch, and products of few terms and at most a vector of columns.
//
// On one thread a small product is done in tens of nanoseconds. Its tiles read the operands as they lie, or copies of them
// on the stack: packed ones, or elements that are as wide as their sums, of some products whose operands follow each other.
#include "gemm_step.h"

namespace weft {

namespace {

constexpr int64_t kCopiedBytes = 16 << 10;  // bytes of an operand of a small product that is copied first
constexpr int64_t kSmallTiles = 512;        // tiles of a product that are listed
constexpr int64_t kWidenedBytes = 4 << 10;  // bytes of an operand of few terms that are widened at a time
constexpr int64_t kPartElements = 16 << 10;  // elements of the result that an epilogue, or a look for interrupts, waits for
constexpr int kChainsInFlight = 8;  // rows of a tile: as many sums keep two units busy that take four cycles
constexpr int kFullTerms = 12;      // terms: more of them are worth the beginning and the end of a tile

// An operand that is copied: often it is one for all of a batch.
struct Copied {
  bool flat = false;  // those of products that follow each other are one run of elements
  int64_t bytes = 0;  // of one product's copy
  const char* of = nullptr;    // what was copied last
  int64_t first = 0, end = 0;  // the products of a run that was
  alignas(kLine) char copy[kCopiedBytes];

  // Where the copy of what lies at `from` for product `item` of a run up to `high` is; it is made if it is not there.
  template <class Copy>
  const char* get(const GemmKernels& kernels, const char* from, int64_t item, int64_t high, Copy make) {
    if (flat) {
      if (item >= end) {
        first = item;
        end = std::min(high, item + kWidenedBytes / bytes);
        const int64_t count = (end - item) * bytes / kernels.packed_bytes;
        kernels.pack({from, 0, 1, nullptr, 1, count, count, count, copy});
      }
      return copy + (item - first) * bytes;
    }
    if (of != from) make(copy);
    of = from;
    return copy;
  }
};

}  // namespace

void GemmStep::plan_thin() {
  const bool fits = kernels->thin != nullptr && k > 0 && k <= kernels->thin_terms && n <= kernels->lanes;
  // tiles of as many rows as there are chains in flight, of whole vectors, do as well for more terms
  const bool tiles_do = n == kernels->lanes && kernels->height >= kChainsInFlight && k > kFullTerms;
  thin = fits && plain && !vector && !tiles_do ? kernels->thin[k - 1] : nullptr;
  if (thin == nullptr) return;
  const double bytes = double(kernels->source_bytes * (m * k + k * n) + kernels->result_bytes * m * n);
  const double each = std::max(double(m) * double(std::max<int64_t>(k, 3)) * figures.term_ns, bytes * figures.near_byte_ns);
  cost = double(batch.count) * (10 + each);
  copies_b = widens() || b_column != 1;
  in_run = m * k * kernels->packed_bytes <= kWidenedBytes && m * n <= kPartElements;
}

void GemmStep::plan_small() {
  const int64_t item = kernels->source_bytes, width = tile_columns(), slivers = pieces_of(m, most_rows);
  if (vector || thin != nullptr || k == 0 || k > span || slivers * pieces_of(n, width) > kSmallTiles) return;
  const bool a_is_near = a_k == 1 || m * k * item <= figures.in_place_bytes;
  const bool rest_plain = a_rows.count == 1 && a_sum.count == 1 && c_rows.count == 1;
  copies_b = kernels->strided != nullptr && (plain ? b_column != 1 : rest_plain && n <= kMostLines) &&
             k * up(n, kernels->lanes) * item <= kCopiedBytes && a_is_near;
  packs_small = kernels->strided == nullptr && kernels->unit == nullptr && plain &&
                std::max(m, packed_columns(n)) * steps_of(k) * kernels->packed_bytes <= kCopiedBytes;
  if (!in_place && !copies_b && !packs_small) return;
  // a last vector alone is bound by its loads
  const bool broad = !packs_small && n > width && n % width != 0 && n % width <= kernels->lanes;
  const int64_t whole = broad ? n / width - 1 : pieces_of(n, width);
  // the part of b that a column of tiles reads stays in the first cache, where not both operands do
  const bool by_column = (m + n) * k * item > kNearBytes;
  for (int64_t i = 0; i < slivers * whole; ++i)
    list_tile(by_column ? i % slivers : i / whole, slivers, (by_column ? i / slivers : i % whole) * width, width);
  const int64_t lower = broad ? pieces_of(m, std::min<int64_t>(most_rows, kernels->broad_height)) : 0;
  for (int64_t sliver = 0; sliver < lower; ++sliver)
    list_tile(sliver, lower, whole * width, width + kernels->lanes);
  // operands that lie together are fetched in as many parts as there are tiles
  const int64_t tiles = int64_t(small.size()), bytes = (m * k + k * n + m * n) * item;
  const auto part = [&](int64_t rows, int64_t columns, int64_t row, int64_t column) {
    const int64_t reach = ((rows - 1) * row + (columns - 1) * column + 1) * item;
    return reach <= 2 * rows * columns * item ? up(pieces_of(reach, tiles), kLine) : 0;
  };
  in_run = true;
  if (packs_small) return;
  near = 2 * bytes <= kNearBytes;
  if (batch.count > 1 && double(batch.count) * double(bytes) > (near ? kNearBytes : figures.batch_bytes)) {
    a_part = part(m, k, a_row, a_k);
    b_part = part(k, n, b_k, b_column);
  }
}

void GemmStep::list_tile(int64_t sliver, int64_t slivers, int64_t column, int64_t width) {
  const int64_t item = kernels->source_bytes, row = m * sliver / slivers, height = m * (sliver + 1) / slivers - row;
  const int columns = int(std::min(width, n - column));
  const int64_t vectors = pieces_of(columns, kernels->lanes);
  const GemmTileFunction* functions = packs_small ? kernels->packed : kernels->strided;
  const bool is_half = kernels->half != nullptr && columns <= tile_columns() + kernels->lanes / 2;
  const GemmTileFunction function = vectors > kernels->vectors
                                        ? (is_half ? kernels->half : kernels->broad)[height - 1]
                                        : functions[(height - 1) * kernels->vectors + vectors - 1];
  const int64_t c = (row * c_row + column) * kernels->result_bytes, line = steps_of(k) * kernels->packed_bytes;
  const int64_t a = packs_small ? row * line : row * a_row * item, b = column * (packs_small ? line : item);
  small.push_back({function, a, b, c, columns});
}

// Flattened, as most of the time goes by between tiles.
[[gnu::flatten]] void GemmStep::run_small(Job* job, int64_t low, int64_t high) const {
  Copied left, right;
  GemmTile tile = small_tile();
  const bool copies_a = packs_small || (thin != nullptr && widens());
  if (thin != nullptr && widens() && batch.dims.size() == 1) {
    const auto follow = [&](int64_t elements, int64_t apart) { return apart == elements * kernels->source_bytes; };
    left.bytes = m * k * kernels->packed_bytes;
    left.flat = ((a_k == 1 && a_row == k) || (a_row == 1 && a_k == m)) && follow(m * k, batch.dims[0].a);
    right.bytes = k * n * kernels->packed_bytes;
    right.flat = b_column == 1 && b_k == n && follow(k * n, batch.dims[0].b);
    if (right.flat) tile.b_k = n, tile.b_padded = false;
  }
  GemmBatch::Walk walk(batch, low, job->a, job->b, job->c);
  Unfinished unfinished{low};
  for (int64_t item = low; item < high && !stream_cancelled(job->number); ++item) {
    Product product{job, walk.a, walk.b, walk.c};
    if (item + 1 < high) walk.advance();
    if (copies_a) {
      product.a = left.get(*kernels, product.a, item, high, [&](char* to) {
        if (packs_small) pack_rows(product, 0, m, 0, k, to);
        else widen_rows(product.a, m, to);
      });
    }
    if (copies_b || packs_small)
      product.b = right.get(*kernels, product.b, item, high, [&](char* to) { copy_columns(product, to); });
    if (thin != nullptr) {
      tile.a = product.a;
      tile.b = product.b;
      tile.c = product.c;
      thin(tile);
    } else {
      multiply_small(product, tile, walk.a, walk.b);
    }
    finish_products(product, item, high, &unfinished);
  }
}

// What tiles of small products, or of few terms, have in common.
GemmTile GemmStep::small_tile() const {
  const bool widened = thin != nullptr && widens();
  GemmTile tile{};
  tile.a_row = !widened ? a_row : a_k == 1 ? k : 1;
  tile.a_k = !widened ? a_k : a_k == 1 ? 1 : m;
  tile.b_padded = copies_b || packs_small;
  tile.b_k = copies_b ? up(n, kernels->lanes) : b_k;
  tile.c_row = c_row;
  tile.k = steps_of(k);
  tile.rows = int(m);
  tile.columns = int(n);
  return tile;
}

void GemmStep::multiply_small(const Product& product, GemmTile& tile, const char* next_a, const char* next_b) const {
  for (const SmallTile& part : small) {
    if (near) {
      for (int64_t i = 0; i < a_part; i += kLine) __builtin_prefetch(next_a + i);
      for (int64_t i = 0; i < b_part; i += kLine) __builtin_prefetch(next_b + i);
    } else if (a_part > 0) {
      fetch_during(tile, next_a, a_part, next_b, b_part, &part - small.data());
    }
    next_a += a_part;
    next_b += b_part;
    tile.a = product.a + part.a;
    tile.b = product.b + part.b;
    tile.c = product.c + part.c;
    tile.columns = part.columns;
    if (packs_small) tile.b_k = up(part.columns, kernels->lanes);
    part.function(tile);
  }
}

// Has half the tiles fetch a and the others b, a line at each step of k; what is too much for that is fetched at once.
void GemmStep::fetch_during(GemmTile& tile, const char* next_a, int64_t a_part, const char* next_b, int64_t b_part,
                            int64_t index) const {
  const bool first = index % 2 == 0;
  tile.fetch = first ? next_a : next_b;
  tile.fetch_step = kLine;
  const int64_t part = 2 * (first ? a_part : b_part);
  for (int64_t i = k * kLine; i < part; i += kLine) __builtin_prefetch(tile.fetch + i, 0, 2);
}

// Copies b, whose rows or columns do not lie side by side, as rows of whole vectors: packs it where a is packed too.
void GemmStep::copy_columns(const Product& product, char* to) const {
  const int64_t pitch = up(n, kernels->lanes);
  if (packs_small) pack_columns(product, 0, n, 0, k, to);
  else if (plain) kernels->pack({product.b, b_k, b_column, nullptr, k, n, pitch, pitch, to});
  else pack_lines({product.b, &b_sum, &b_columns, 0, k, 0, n, false, to}, pitch);
}

// Copies rows of a: terms follow each other where they do in a, otherwise rows do.
void GemmStep::widen_rows(const char* a, int64_t rows, char* to) const {
  if (a_k == 1 && a_row == k) kernels->pack({a, 0, 1, nullptr, 1, rows * k, rows * k, rows * k, to});
  else if (a_k == 1) kernels->pack({a, a_row, 1, nullptr, rows, k, k, k, to});
  else kernels->pack({a, a_k, a_row, nullptr, k, rows, rows, rows, to});
}

// Few terms: tall products, in parts of rows.

void GemmStep::multiply_thin(const Product& product) const {
  const int64_t tasks = product.job->threads == 1 ? 1 : cost < 20000 ? product.job->threads : 4 * product.job->threads;
  const int64_t size = pieces_of(m, tasks);
  each(product, pieces_of(m, size), [&](int64_t task) { thin_rows(product, task * size, std::min(m, (task + 1) * size)); });
}

void GemmStep::thin_rows(const Product& product, int64_t row, int64_t end) const {
  Copied widened, columns;
  GemmTile tile = small_tile();
  if (copies_b) copy_columns(product, columns.copy);
  tile.b = copies_b ? columns.copy : product.b;
  const int64_t most = widens() ? kWidenedBytes / (k * kernels->packed_bytes) : std::max<int64_t>(1, kPartElements / n);
  for (int64_t some; row < end && !stream_cancelled(product.job->number); row += some) {
    some = std::min(most, end - row);
    tile.a = product.a + row * a_row * kernels->source_bytes;
    if (widens()) {
      widen_rows(tile.a, some, widened.copy);
      tile.a = widened.copy;
      if (a_k != 1) tile.a_k = some;
    }
    tile.c = product.c + row * c_row * kernels->result_bytes;
    tile.rows = int(some);
    thin(tile);
    if (form != Form::none) finish(product, row, row + some, 0, n);
  }
}

}  // namespace weft
