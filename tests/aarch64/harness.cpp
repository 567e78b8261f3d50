// Runs programs of compiled kernels without Python: reads a file that tests/aarch64/programs.py wrote, writes results.
//
//   harness PROGRAMS RESULTS
//
// It is built for AArch64 and run by an emulator, and built for x86-64 and run as it is, with the runtime's own
// loader. A file is a sequence of 64-bit words and of byte strings (a word with their length, then the bytes); the
// order of its parts is that of the functions below. Whoever writes the file vouches for it: nothing is checked.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "loader.h"

namespace {

using Function = void (*)(void* const*, const int64_t*, const int64_t*, void*);
using Bytes = std::vector<char>;
constexpr size_t kAlign = 64;

struct File {
  explicit File(const char* path, const char* mode) : file(std::fopen(path, mode)) {
    if (file == nullptr) {
      std::perror(path);
      std::exit(2);
    }
  }
  ~File() { std::fclose(file); }
  std::FILE* file;
};

struct Reader : File {
  explicit Reader(const char* path) : File(path, "rb") {}
  void take(void* to, size_t n) {
    if (n != 0 && std::fread(to, 1, n, file) != n) {
      std::fprintf(stderr, "the file of programs ends too early\n");
      std::exit(2);
    }
  }
  int64_t word() {
    int64_t value;
    take(&value, 8);
    return value;
  }
  std::vector<int64_t> words() {
    std::vector<int64_t> found(static_cast<size_t>(word()));
    take(found.data(), 8 * found.size());
    return found;
  }
  Bytes bytes() {
    Bytes found(static_cast<size_t>(word()));
    take(found.data(), found.size());
    return found;
  }
};

// Memory at a multiple of 64 bytes, as the runtime's buffers are.
struct Block {
  explicit Block(size_t n) : size(n), base(static_cast<char*>(std::aligned_alloc(kAlign, (n / kAlign + 2) * kAlign))) {
    std::memset(base, 0, (n / kAlign + 2) * kAlign);
  }
  ~Block() { std::free(base); }
  Block(const Block&) = delete;
  size_t size;
  char* base;
};

struct Program {
  explicit Program(Reader& in) {
    for (int64_t n = in.word(); n > 0; --n) {
      const Bytes given = in.bytes();
      slots.push_back(std::make_unique<Block>(static_cast<size_t>(in.word())));
      if (!given.empty()) std::memcpy(slots.back()->base, given.data(), given.size());
    }
    dynamic.resize(static_cast<size_t>(in.word()));
  }

  char* location(Reader& in) {
    const int64_t slot = in.word(), offset = in.word(), number = in.word();
    return slots[static_cast<size_t>(slot)]->base + offset + (number < 0 ? 0 : dynamic[static_cast<size_t>(number)]);
  }
  std::vector<void*> locations(Reader& in) {
    std::vector<void*> found;
    for (int64_t n = in.word(); n > 0; --n) found.push_back(location(in));
    return found;
  }

  std::vector<std::unique_ptr<Block>> slots;
  std::vector<int64_t> dynamic;  // run-time offsets in bytes
};

int32_t go_on() { return 0; }  // what a loop asks: none is interrupted here

enum Split : int64_t { kNone, kFirst, kVector, kBlocks };

// A kernel, as the runtime calls it on one thread: all of what may be split at once, then the second pass of blocks.
struct Kernel {
  explicit Kernel(Reader& in, Program& program) {
    const Bytes object = in.bytes(), symbol = in.bytes();
    const auto* data = reinterpret_cast<const uint8_t*>(object.data());
    const weft::Image image = weft::link_object(data, object.size(), std::string(symbol.begin(), symbol.end()));
    blob = std::make_unique<weft::CodeBlob>(image);
    params = in.words();
    params.push_back(0);
    bases = program.locations(in);
  }
  void call(const int64_t* range, void* scratch) {
    reinterpret_cast<Function>(blob->entry())(bases.data(), params.data(), range, scratch);
  }

  std::unique_ptr<weft::CodeBlob> blob;
  std::vector<int64_t> params;
  std::vector<void*> bases;
};

void run_nest(Kernel& kernel, const std::vector<int64_t>& how) {
  static const int32_t go_on = 0;
  const int64_t split = how[0], extent = how[1], first = how[4], vector = how[5];
  Block scratch(static_cast<size_t>(how[2])), partial(static_cast<size_t>(how[3]));
  int64_t range[7] = {0, first, 0, vector, 0, 0, reinterpret_cast<int64_t>(&go_on)};
  if (how[3] != 0) range[5] = reinterpret_cast<int64_t>(partial.base);  // without, sums are not left in parts
  if (split == kFirst) range[1] = extent;
  if (split == kVector || split == kBlocks) range[3] = extent;
  if (split == kNone || extent > 0) kernel.call(range, scratch.base);
  range[4] = 1;
  if (split == kBlocks) kernel.call(range, scratch.base);
}

void run_outer(Reader& in, Kernel& kernel, const std::vector<int64_t>& how) {
  const std::vector<int64_t> extents = in.words(), strides = in.words();  // bytes: one for each operand of a dimension
  const size_t count = kernel.bases.size();
  const std::vector<void*> start = kernel.bases;
  int64_t points = 1;
  for (int64_t extent : extents) points *= extent;
  for (int64_t point = 0; point < points; ++point) {
    kernel.bases = start;
    int64_t rest = point;
    for (size_t d = extents.size(); d-- > 0; rest /= extents[d])
      for (size_t i = 0; i < count; ++i)
        kernel.bases[i] = static_cast<char*>(kernel.bases[i]) + rest % extents[d] * strides[d * count + i];
    run_nest(kernel, how);
  }
}

int64_t clamped(const char* from, int64_t bytes, bool is_signed, int64_t most) {
  uint64_t raw = 0;
  std::memcpy(&raw, from, static_cast<size_t>(bytes));
  const int unused = 64 - 8 * static_cast<int>(bytes);
  if (is_signed && static_cast<int64_t>(raw << unused) < 0) return 0;
  return raw > static_cast<uint64_t>(most) ? most : static_cast<int64_t>(raw);
}

void copy_rows(char* to, const char* from, size_t nbytes, const std::vector<int64_t>& walks, size_t at) {
  if (at == walks.size()) {
    std::memcpy(to, from, nbytes);
    return;
  }
  for (int64_t i = 0; i < walks[at]; ++i)
    copy_rows(to + i * walks[at + 1], from + i * walks[at + 1], nbytes, walks, at + 2);
}

void run_step(Reader& in, Program& program) {
  switch (in.word()) {
    case 0: {  // a kernel
      Kernel kernel(in, program);
      const std::vector<int64_t> how = in.words();
      run_outer(in, kernel, how);
      return;
    }
    case 1: {  // a routine: a loop with its state in registers
      Kernel kernel(in, program);
      const int64_t range[7] = {0, 0, 0, 0, 0, 0, reinterpret_cast<int64_t>(go_on)};
      kernel.call(range, nullptr);
      return;
    }
    case 2: {  // a copy of runs of bytes at regular distances
      char* to = program.location(in);
      const char* from = program.location(in);
      const size_t nbytes = static_cast<size_t>(in.word());
      const std::vector<int64_t> walks = in.words();
      if (walks.empty()) std::memmove(to, from, nbytes);
      else copy_rows(to, from, nbytes, walks, 0);
      return;
    }
    case 3: {  // a fill
      char* to = program.location(in);
      const size_t nbytes = static_cast<size_t>(in.word());
      std::memset(to, static_cast<int>(in.word()), nbytes);
      return;
    }
    case 4: {  // a run-time offset
      const size_t number = static_cast<size_t>(in.word());
      int64_t sum = 0;
      for (int64_t n = in.word(); n > 0; --n) {
        const char* from = program.location(in);
        const std::vector<int64_t> term = in.words();  // bytes, signed, largest, stride
        sum += clamped(from, term[0], term[1] != 0, term[2]) * term[3];
      }
      program.dynamic[number] = sum;
      return;
    }
    default: std::fprintf(stderr, "an unknown step\n"), std::exit(2);
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) {
    std::fprintf(stderr, "usage: harness PROGRAMS RESULTS\n");
    return 2;
  }
  Reader in(arguments[1]);
  File out(arguments[2], "wb");
  try {
    for (int64_t programs = in.word(); programs > 0; --programs) {
      Program program(in);
      for (int64_t steps = in.word(); steps > 0; --steps) run_step(in, program);
      for (const auto& slot : program.slots) std::fwrite(slot->base, 1, slot->size, out.file);
    }
  } catch (const weft::LoadError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
