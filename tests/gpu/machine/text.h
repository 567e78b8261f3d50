// A PTX text as words, and statements of words.
#pragma once

#include <string>
#include <vector>

#include "program.h"

namespace ptx {

struct Word {
  std::string text;
  int line;
};

// The words of a text without its comments. An undefined value, which LLVM notes in a comment only, is the word
// "implicit-def" before its register and a semicolon.
std::vector<Word> words_of(const std::string& text);

// An operand as it is written: registers, numbers, names and addresses.
struct RawOperand {
  enum Kind { value, address, pair, list } kind = value;
  std::string text;                 // a register, number or name; the base of an address
  int64_t offset = 0;               // of an address
  bool negated = false;             // a predicate with !
  std::vector<std::string> parts;   // of {a, b} and a|b
};

struct Statement {
  std::string guard;  // the predicate register
  bool negated = false;
  std::string name;                // before the first point
  std::vector<std::string> parts;  // between the points behind it
  std::vector<RawOperand> operands;
  std::string text;
  int line = 0;
};

// The statement of words [from, to), which a semicolon ended.
Statement statement_of(const std::vector<Word>& words, size_t from, size_t to);

// The bits of a number in a text, for a type.
bool parse_number(const std::string& word, Type type, uint64_t* bits);

}  // namespace ptx
