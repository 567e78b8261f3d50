// ELF64 relocatable objects -> code. See loader.h for the contract.
//
// Every number read from the file is checked against the file's or the section's size before it is used, so that a
// damaged object raises instead of reading or writing out of bounds. Byte order is little endian throughout.
#include "loader.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

namespace weft {
namespace {

constexpr size_t kMaxBlobBytes = size_t{256} << 20;
constexpr uint64_t kMaxAlign = 4096;

constexpr uint32_t SHT_PROGBITS = 1, SHT_SYMTAB = 2, SHT_RELA = 4, SHT_NOBITS = 8, SHT_REL = 9;
constexpr uint32_t SHT_X86_64_UNWIND = 0x70000001, SHT_NOTE = 7;
constexpr uint64_t SHF_WRITE = 1, SHF_ALLOC = 2, SHF_EXECINSTR = 4, SHF_TLS = 0x400, SHF_COMPRESSED = 0x800;
constexpr uint16_t SHN_UNDEF = 0, SHN_LORESERVE = 0xff00, SHN_ABS = 0xfff1;
constexpr uint8_t STT_FILE = 4, STT_TLS = 6, STT_GNU_IFUNC = 10;

struct FileHeader {
  uint8_t ident[16];
  uint16_t type, machine;
  uint32_t version;
  uint64_t entry, phoff, shoff;
  uint32_t flags;
  uint16_t ehsize, phentsize, phnum, shentsize, shnum, shstrndx;
};
struct SectionHeader {
  uint32_t name, type;
  uint64_t flags, addr, offset, size;
  uint32_t link, info;
  uint64_t addralign, entsize;
};
struct SymbolEntry {
  uint32_t name;
  uint8_t info, other;
  uint16_t shndx;
  uint64_t value, size;
};
struct RelaEntry {
  uint64_t offset, info;
  int64_t addend;
};
static_assert(sizeof(FileHeader) == 64 && sizeof(SectionHeader) == 64 && sizeof(SymbolEntry) == 24 &&
              sizeof(RelaEntry) == 24);

[[noreturn]] void fail(std::string what) {
  for (char& c : what)
    if (c < ' ' || c > '~') c = '?';  // names in a damaged file
  throw LoadError("[load_kernel] " + what);
}

struct Section {
  SectionHeader header{};
  std::string name;
  bool loaded = false;
  size_t base = 0;  // offset in the blob, when loaded
};

class Linker {
 public:
  Linker(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  Image link(const std::string& symbol) {
    read_header();
    read_sections();
    lay_out_sections();
    read_symbols();
    for (const Section& section : sections_) apply_section(section);
    image_.entry = find_entry(symbol);
    return std::move(image_);
  }

 private:
  template <class T>
  T read(uint64_t offset, const char* what) const {
    if (offset > size_ || size_ - offset < sizeof(T))
      fail(std::string("damaged object: ") + what + " lies outside the file");
    T value;
    std::memcpy(&value, data_ + offset, sizeof(T));
    return value;
  }

  void read_header() {
    header_ = read<FileHeader>(0, "the file header");
    static const uint8_t magic[7] = {0x7f, 'E', 'L', 'F', 2, 1, 1};
    if (std::memcmp(header_.ident, magic, sizeof(magic)) != 0) fail("not a little-endian ELF64 object");
    if (header_.type != 1) fail("not a relocatable object (e_type " + std::to_string(header_.type) + ")");
    if (header_.machine != uint16_t(Machine::x86_64) && header_.machine != uint16_t(Machine::aarch64))
      fail("unknown machine " + std::to_string(header_.machine));
    image_.machine = Machine(header_.machine);
    if (header_.shentsize != sizeof(SectionHeader)) fail("damaged object: wrong size of section headers");
    if (header_.shnum == 0 || header_.shstrndx >= header_.shnum) fail("damaged object: no section names");
  }

  std::string string_at(const SectionHeader& table, uint32_t offset) const {
    if (offset >= table.size) fail("damaged object: a name lies outside its string table");
    const char* begin = reinterpret_cast<const char*>(data_ + table.offset + offset);
    const void* end = std::memchr(begin, 0, table.size - offset);
    if (end == nullptr) fail("damaged object: a name does not end");
    return std::string(begin, static_cast<const char*>(end));
  }

  void read_sections() {
    sections_.resize(header_.shnum);
    for (size_t i = 0; i < sections_.size(); ++i) {
      SectionHeader h = read<SectionHeader>(header_.shoff + i * sizeof(SectionHeader), "a section header");
      if (header_.shoff > size_) fail("damaged object: section headers lie outside the file");
      if (h.type != 0 && h.type != SHT_NOBITS && (h.offset > size_ || size_ - h.offset < h.size))
        fail("damaged object: section " + std::to_string(i) + " lies outside the file");
      sections_[i].header = h;
    }
    const SectionHeader& names = sections_[header_.shstrndx].header;
    if (names.type != 3) fail("damaged object: section names are not a string table");
    for (size_t i = 1; i < sections_.size(); ++i) sections_[i].name = string_at(names, sections_[i].header.name);
  }

  // Unwind tables are dropped: kernels neither throw nor are unwound through.
  bool wanted(const Section& s) const {
    const SectionHeader& h = s.header;
    if (!(h.flags & SHF_ALLOC) || h.size == 0) return false;
    if (s.name.rfind(".eh_frame", 0) == 0 || h.type == SHT_X86_64_UNWIND || h.type == SHT_NOTE) return false;
    if (h.flags & (SHF_TLS | SHF_COMPRESSED)) fail("section " + s.name + " is thread-local or compressed");
    if (h.type != SHT_PROGBITS) fail("section " + s.name + " has no bytes in the file: writable data is not supported");
    if ((h.flags & SHF_WRITE) && s.name.rfind(".data.rel.ro", 0) != 0) fail("section " + s.name + " is writable");
    if (h.addralign > kMaxAlign || (h.addralign & (h.addralign - 1)))
      fail("section " + s.name + " has a wrong alignment");
    return true;
  }

  void lay_out_sections() {
    size_t end = 0;
    for (int pass = 0; pass < 2; ++pass) {  // code first, then constants
      for (Section& s : sections_) {
        bool code = (s.header.flags & SHF_EXECINSTR) != 0;
        if (code != (pass == 0) || !wanted(s)) continue;
        size_t align = s.header.addralign < 16 ? 16 : size_t(s.header.addralign);
        end = (end + align - 1) & ~(align - 1);
        if (s.header.size > kMaxBlobBytes || end + s.header.size > kMaxBlobBytes) fail("the object is too large");
        s.loaded = true;
        s.base = end;
        end += s.header.size;
      }
    }
    if (end == 0) fail("the object holds no code");
    image_.bytes.assign(end, 0);
    for (const Section& s : sections_)
      if (s.loaded) std::memcpy(image_.bytes.data() + s.base, data_ + s.header.offset, s.header.size);
  }

  void read_symbols() {
    for (const Section& s : sections_) {
      if (s.header.type != SHT_SYMTAB) continue;
      if (symtab_ != nullptr) fail("damaged object: two symbol tables");
      if (s.header.entsize != sizeof(SymbolEntry) || s.header.link >= sections_.size())
        fail("damaged object: wrong symbol table");
      symtab_ = &s;
    }
    if (symtab_ == nullptr) fail("the object has no symbol table");
    const SectionHeader& names = sections_[symtab_->header.link].header;
    if (names.type != 3) fail("damaged object: symbol names are not a string table");
    size_t count = symtab_->header.size / sizeof(SymbolEntry);
    for (size_t i = 0; i < count; ++i) {
      SymbolEntry e = read<SymbolEntry>(symtab_->header.offset + i * sizeof(SymbolEntry), "a symbol");
      symbols_.push_back(e);
      symbol_names_.push_back(i == 0 ? std::string() : string_at(names, e.name));
      if (i == 0 || (e.info & 15) == STT_FILE) continue;
      if (e.shndx == SHN_UNDEF) fail("the object refers to the external symbol " + symbol_names_[i]);
      if ((e.info & 15) == STT_TLS || (e.info & 15) == STT_GNU_IFUNC)
        fail("symbol " + symbol_names_[i] + " is of an unsupported type");
      if (e.shndx >= SHN_LORESERVE && e.shndx != SHN_ABS) fail("symbol " + symbol_names_[i] + " is common");
      if (e.shndx < SHN_LORESERVE && e.shndx >= sections_.size())
        fail("damaged object: symbol " + symbol_names_[i] + " names no section");
    }
  }

  // Offset of a symbol in the blob.
  uint64_t address_of(size_t index) const {
    if (index == 0 || index >= symbols_.size()) fail("damaged object: a relocation names no symbol");
    const SymbolEntry& e = symbols_[index];
    if (e.shndx == SHN_UNDEF || e.shndx >= SHN_LORESERVE)
      fail("a relocation needs the absolute symbol " + symbol_names_[index]);
    const Section& s = sections_[e.shndx];
    if (!s.loaded) fail("a relocation points into section " + s.name + ", which is not loaded");
    if (e.value > s.header.size) fail("damaged object: symbol " + symbol_names_[index] + " lies outside its section");
    return s.base + e.value;
  }

  size_t find_entry(const std::string& symbol) const {
    for (size_t i = 1; i < symbols_.size(); ++i) {
      const SymbolEntry& e = symbols_[i];
      if (symbol_names_[i] != symbol || e.shndx == SHN_UNDEF || e.shndx >= SHN_LORESERVE) continue;
      const Section& s = sections_[e.shndx];
      if (!s.loaded || !(s.header.flags & SHF_EXECINSTR) || e.value >= s.header.size)
        fail("symbol " + symbol + " is not code");
      return s.base + e.value;
    }
    fail("the object does not define " + symbol);
  }

  void apply_section(const Section& s) {
    if (s.header.type != SHT_RELA && s.header.type != SHT_REL) return;
    if (s.header.info >= sections_.size()) fail("damaged object: relocations of no section");
    const Section& target = sections_[s.header.info];
    if (!target.loaded) return;
    if (s.header.type == SHT_REL) fail("relocations without addends are not supported");
    if (s.header.entsize != sizeof(RelaEntry)) fail("damaged object: wrong size of relocations");
    size_t count = s.header.size / sizeof(RelaEntry);
    for (size_t i = 0; i < count; ++i) {
      RelaEntry r = read<RelaEntry>(s.header.offset + i * sizeof(RelaEntry), "a relocation");
      uint32_t type = uint32_t(r.info);
      if (type == 0) continue;
      if (image_.machine == Machine::x86_64) apply_x86(target, r, type);
      else apply_aarch64(target, r, type);
    }
  }

  uint8_t* patched(const Section& target, const RelaEntry& r, size_t width) {
    if (r.offset > target.header.size || target.header.size - r.offset < width)
      fail("damaged object: a relocation lies outside section " + target.name);
    return image_.bytes.data() + target.base + r.offset;
  }

  // S + A - P; wraps on purpose, the range check follows.
  int64_t distance(const Section& target, const RelaEntry& r) const {
    return int64_t(address_of(r.info >> 32) + uint64_t(r.addend) - (target.base + r.offset));
  }

  static void put32(uint8_t* where, uint32_t value) { std::memcpy(where, &value, 4); }
  static uint32_t get32(const uint8_t* where) {
    uint32_t value;
    std::memcpy(&value, where, 4);
    return value;
  }
  static void check_signed(int64_t value, int bits) {
    int64_t limit = int64_t{1} << (bits - 1);
    if (value < -limit || value >= limit) fail("damaged object: a relocation reaches too far");
  }

  void apply_x86(const Section& target, const RelaEntry& r, uint32_t type) {
    switch (type) {
      case 2:    // R_X86_64_PC32
      case 4: {  // R_X86_64_PLT32: the symbol is in the blob, so a plain distance
        uint8_t* where = patched(target, r, 4);
        int64_t value = distance(target, r);
        check_signed(value, 32);
        put32(where, uint32_t(value));
        return;
      }
      case 24: {  // R_X86_64_PC64
        uint8_t* where = patched(target, r, 8);
        int64_t value = distance(target, r);
        std::memcpy(where, &value, 8);
        return;
      }
      default:
        fail("x86-64 relocation type " + std::to_string(type) + " in " + target.name +
             " is not PC-relative inside the object");
    }
  }

  void apply_aarch64(const Section& target, const RelaEntry& r, uint32_t type) {
    int64_t value;
    uint8_t* where;
    switch (type) {
      case 260:  // R_AARCH64_PREL64
        where = patched(target, r, 8);
        value = distance(target, r);
        std::memcpy(where, &value, 8);
        return;
      case 261:  // R_AARCH64_PREL32
        where = patched(target, r, 4);
        value = distance(target, r);
        check_signed(value, 32);
        put32(where, uint32_t(value));
        return;
      case 282:    // R_AARCH64_JUMP26
      case 283: {  // R_AARCH64_CALL26
        where = patched(target, r, 4);
        value = distance(target, r);
        check_signed(value, 28);
        if (value & 3) fail("damaged object: a branch to an unaligned address");
        put32(where, (get32(where) & 0xfc000000u) | (uint32_t(value >> 2) & 0x03ffffffu));
        return;
      }
      case 280:  // R_AARCH64_CONDBR19
      case 273:  // R_AARCH64_LD_PREL_LO19
        where = patched(target, r, 4);
        value = distance(target, r);
        check_signed(value, 21);
        put32(where, (get32(where) & ~0x00ffffe0u) | ((uint32_t(value >> 2) & 0x7ffffu) << 5));
        return;
      case 274:  // R_AARCH64_ADR_PREL_LO21
        where = patched(target, r, 4);
        value = distance(target, r);
        check_signed(value, 21);
        put32(where, patch_adr(get32(where), value));
        return;
      case 275: {  // offsets in the blob are page offsets, since the blob starts on a page
        where = patched(target, r, 4);
        uint64_t s = address_of(r.info >> 32) + uint64_t(r.addend), p = target.base + r.offset;
        value = int64_t((s & ~uint64_t{0xfff}) - (p & ~uint64_t{0xfff})) >> 12;
        check_signed(value, 21);
        put32(where, patch_adr(get32(where), value));
        return;
      }
      case 277: return patch_low12(target, r, 0);  // R_AARCH64_ADD_ABS_LO12_NC
      case 278: return patch_low12(target, r, 0);  // R_AARCH64_LDST8_ABS_LO12_NC
      case 284: return patch_low12(target, r, 1);  // R_AARCH64_LDST16_ABS_LO12_NC
      case 285: return patch_low12(target, r, 2);  // R_AARCH64_LDST32_ABS_LO12_NC
      case 286: return patch_low12(target, r, 3);  // R_AARCH64_LDST64_ABS_LO12_NC
      case 299: return patch_low12(target, r, 4);  // R_AARCH64_LDST128_ABS_LO12_NC
      default:
        fail("AArch64 relocation type " + std::to_string(type) + " in " + target.name +
             " is not PC-relative inside the object");
    }
  }

  static uint32_t patch_adr(uint32_t word, int64_t value) {
    return (word & 0x9f00001fu) | ((uint32_t(value) & 3u) << 29) | (((uint32_t(value >> 2)) & 0x7ffffu) << 5);
  }

  void patch_low12(const Section& target, const RelaEntry& r, int shift) {
    uint8_t* where = patched(target, r, 4);
    uint64_t low = (address_of(r.info >> 32) + uint64_t(r.addend)) & 0xfff;
    if (low & ((uint64_t{1} << shift) - 1)) fail("damaged object: an unaligned constant");
    put32(where, (get32(where) & ~(0xfffu << 10)) | (uint32_t(low >> shift) << 10));
  }

  const uint8_t* data_;
  size_t size_;
  FileHeader header_{};
  std::vector<Section> sections_;
  const Section* symtab_ = nullptr;
  std::vector<SymbolEntry> symbols_;
  std::vector<std::string> symbol_names_;
  Image image_;
};

#if defined(__x86_64__)
constexpr Machine kHost = Machine::x86_64;
#elif defined(__aarch64__)
constexpr Machine kHost = Machine::aarch64;
#else
#error "weft runs on x86-64 and AArch64"
#endif

}  // namespace

Image link_object(const uint8_t* data, size_t size, const std::string& symbol) {
  return Linker(data, size).link(symbol);
}

CodeBlob::CodeBlob(const Image& image) : entry_(image.entry) {
  if (image.machine != kHost) fail("the object is for another machine");
  size_t page = size_t(sysconf(_SC_PAGESIZE));
  mapped_ = (image.bytes.size() + page - 1) / page * page;
  void* base = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) fail("no memory for " + std::to_string(mapped_) + " bytes of code");
  std::memcpy(base, image.bytes.data(), image.bytes.size());
  if (mprotect(base, mapped_, PROT_READ | PROT_EXEC) != 0) {
    munmap(base, mapped_);
    fail("the system refuses to make code executable");
  }
  __builtin___clear_cache(static_cast<char*>(base), static_cast<char*>(base) + mapped_);
  base_ = base;
}

CodeBlob::~CodeBlob() {
  if (base_ != nullptr) munmap(base_, mapped_);
}

}  // namespace weft
