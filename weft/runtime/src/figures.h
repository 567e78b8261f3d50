// Figures of the machine: what its caches hold, and how long memory, threads and instructions take. Their values come
// from the target model (weft/_base/target_model.py), which says unit, meaning and where each was measured; Python
// hands them down when it loads this module, before there is any plan.
//
// A figure is a number that differs from machine to machine. Other numbers are constants of the files that use them:
// parameters of algorithms (how finely work is cut, how long an interrupt may wait, rows of a tile, room on the stack),
// and what a kernel for one set of instructions takes for granted.
#pragma once

#include <cstdint>

namespace weft {

// X(type, name); bytes are int64_t, shares and nanoseconds double.
#define WEFT_FIGURES(X)                                                                                        \
  X(int64_t, in_place_bytes) X(int64_t, few_columns_bytes) X(int64_t, few_terms_bytes)                         \
  X(int64_t, strip_bytes) X(int64_t, complex_strip_bytes) X(int64_t, crossing_bytes)                           \
  X(int64_t, few_sums_bytes) X(int64_t, block_bytes) X(int64_t, held_bytes) X(int64_t, batch_bytes)          \
  X(int64_t, partial_bytes) X(int64_t, large_bytes) X(int64_t, shared_bytes)                                   \
  X(double, nearly_held) X(double, most_held) X(double, strips_held) X(double, complex_strips_held)            \
  X(bool, in_parts) X(bool, in_strips) X(bool, fast_pairs)                                                     \
  X(double, near_byte_ns) X(double, far_byte_ns) X(double, product_ns) X(double, tile_ns) X(double, term_ns)   \
  X(double, copy_byte_ns) X(double, fill_byte_ns) X(double, scan_byte_ns) X(double, python_byte_ns)            \
  X(double, exchange_ns) X(double, exchange_done_ns) X(double, exchange_byte_ns)                               \
  X(double, fft_flop_ns) X(double, matrix_ns) X(double, matrix_flop_ns)                                        \
  X(double, sort_word_ns) X(double, sort_read_ns) X(double, sort_move_ns) X(double, compare_ns)                \
  X(double, vector_compare_ns) X(double, value_compare_ns) X(double, value_pass_ns)                            \
  X(double, inline_ns) X(double, wake_ns) X(double, awake_ns) X(double, asleep_ns) X(double, streak_pause_ns)  \
  X(double, clock_ns) X(double, call_ns)

struct Figures {
#define WEFT_FIGURE(type, name) type name;
  WEFT_FIGURES(WEFT_FIGURE)
#undef WEFT_FIGURE
};

extern Figures figures;  // written once, with the GIL held

// LINE and PAGE of the target model, which memory is aligned to while this is compiled.
constexpr int64_t kLine = 64, kPage = 4096;

// The widest target (weft/_base/target.py) that this processor runs; "" if it runs none.
const char* widest_target();

}  // namespace weft
