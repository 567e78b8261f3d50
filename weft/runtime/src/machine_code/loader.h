// Maps relocatable ELF objects made by LLVM: bytes in, one read-execute blob out.
//
// A kernel object is position independent: its code and constants are laid out in one blob, and only PC-relative
// relocations between them are applied. Anything else (an external symbol, an absolute address, a GOT entry, writable
// data, a damaged file) is a LoadError. Pages are written first and made read-execute afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace weft {

struct LoadError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

enum class Machine : uint16_t { x86_64 = 62, aarch64 = 183 };

// The relocated image, not yet executable. Valid at any page-aligned address.
struct Image {
  Machine machine{};
  std::vector<uint8_t> bytes;
  size_t entry = 0;  // offset of the symbol asked for
};

// Throws LoadError on anything but a well-formed, self-contained object that defines `symbol`.
Image link_object(const uint8_t* data, size_t size, const std::string& symbol);

// Owns one read-execute mapping; the code is unmapped by the destructor.
class CodeBlob {
 public:
  explicit CodeBlob(const Image& image);
  ~CodeBlob();
  CodeBlob(const CodeBlob&) = delete;
  CodeBlob& operator=(const CodeBlob&) = delete;

  void* entry() const { return static_cast<char*>(base_) + entry_; }
  size_t mapped_bytes() const { return mapped_; }

 private:
  void* base_ = nullptr;
  size_t mapped_ = 0;
  size_t entry_ = 0;
};

}  // namespace weft
