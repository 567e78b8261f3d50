// Words, statements and numbers of a PTX text.
#include "text.h"

#include <cctype>
#include <cstdlib>
#include <cstring>

#include "halves.h"

namespace ptx {

namespace {

bool in_name(char c) { return isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '%' || c == '.'; }

// a comment's end; a note of an undefined register becomes words
size_t comment(const std::string& text, size_t at, int* line, std::vector<Word>* words) {
  if (text[at + 1] == '/') {
    size_t end = text.find('\n', at);
    if (end == std::string::npos) end = text.size();
    const std::string note = text.substr(at, end - at);
    if (const size_t found = note.find("implicit-def: "); found != std::string::npos)
      for (const std::string& word : {std::string("implicit-def"), note.substr(found + 14), std::string(";")})
        words->push_back({word.substr(0, word.find_last_not_of(" \t\r") + 1), *line});
    return end;
  }
  const size_t end = text.find("*/", at);
  if (end == std::string::npos) return text.size();
  for (size_t k = at; k < end; ++k) *line += text[k] == '\n';
  return end + 2;
}

}  // namespace

std::vector<Word> words_of(const std::string& text) {
  std::vector<Word> words;
  int line = 1;
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c == '\n') ++line;
    if (c == '\0') break;
    if (isspace(static_cast<unsigned char>(c))) {
      ++at;
    } else if (c == '/' && at + 1 < text.size() && (text[at + 1] == '/' || text[at + 1] == '*')) {
      at = comment(text, at, &line, &words);
    } else if (c == '"') {
      const size_t end = text.find('"', at + 1);
      words.push_back({text.substr(at, end + 1 - at), line});
      at = end == std::string::npos ? text.size() : end + 1;
    } else if (in_name(c) || (c == '-' && at + 1 < text.size() && isdigit(static_cast<unsigned char>(text[at + 1])))) {
      size_t end = at + 1;
      while (end < text.size() && (in_name(text[end]) || (text[end] == ':' && text[end + 1] == ':'))) {
        end += text[end] == ':' ? 2 : 1;
      }
      words.push_back({text.substr(at, end - at), line});
      at = end;
    } else {
      words.push_back({std::string(1, c), line});
      ++at;
    }
  }
  return words;
}

namespace {

RawOperand operand_of(const std::vector<Word>& words, size_t& at, size_t to) {
  RawOperand result;
  if (words[at].text == "[") {
    result.kind = RawOperand::address;
    for (++at; at < to && words[at].text != "]"; ++at) {
      const std::string& word = words[at].text;
      if (word == "+") continue;
      if (isdigit(static_cast<unsigned char>(word[0])) || word[0] == '-') {
        result.offset += int64_t(strtoull(word.c_str(), nullptr, 0));
      } else {
        result.text = word;
      }
    }
    ++at;
  } else if (words[at].text == "{" || words[at].text == "(") {
    result.kind = RawOperand::list;
    const std::string end = words[at].text == "{" ? "}" : ")";
    for (++at; at < to && words[at].text != end; ++at)
      if (words[at].text != ",") result.parts.push_back(words[at].text);
    ++at;
  } else {
    if (words[at].text == "!") {
      result.negated = true;
      ++at;
    }
    if (at < to) result.text = words[at++].text;
    if (at + 1 < to && words[at].text == "|") {
      result.kind = RawOperand::pair;
      result.parts = {result.text, words[at + 1].text};
      at += 2;
    } else if (at + 1 < to && words[at].text == "+") {  // a variable's address with an offset
      result.offset = int64_t(strtoull(words[at + 1].text.c_str(), nullptr, 0));
      at += 2;
    }
  }
  return result;
}

}  // namespace

Statement statement_of(const std::vector<Word>& words, size_t from, size_t to) {
  Statement result;
  result.line = words[from].line;
  for (size_t k = from; k < to; ++k) {
    const bool close = k > from && (words[k].text == "," || words[k].text == "]" || words[k].text == ";");
    result.text += (k > from && !close && words[k - 1].text != "[" && words[k - 1].text != "@" ? " " : "") + words[k].text;
  }
  size_t at = from;
  if (words[at].text == "@") {
    if (words[++at].text == "!") {
      result.negated = true;
      ++at;
    }
    result.guard = words[at++].text;
  }
  if (at >= to) throw Error("text", "line " + std::to_string(result.line) + ": a statement without a name");
  std::string rest = words[at++].text;
  for (size_t point; (point = rest.find('.', 1)) != std::string::npos; rest = rest.substr(point + 1)) {
    result.parts.push_back(rest.substr(0, point));
  }
  result.parts.push_back(rest);
  result.name = result.parts.front();
  result.parts.erase(result.parts.begin());
  while (at < to) {
    result.operands.push_back(operand_of(words, at, to));
    if (at < to && words[at].text == ",") {
      ++at;
    } else if (at < to) {
      throw Error("text", "line " + std::to_string(result.line) + ": cannot read \"" + words[at].text + "\" in \"" +
                              result.text + "\"");
    }
  }
  return result;
}

bool parse_number(const std::string& word, Type type, uint64_t* result) {
  if (word.size() > 2 && word[0] == '0' && (word[1] == 'f' || word[1] == 'F')) {
    *result = strtoull(word.c_str() + 2, nullptr, 16);
    if (type == Type::f64) *result = bits(double(as_float(uint32_t(*result))));
    return true;
  }
  if (word.size() > 2 && word[0] == '0' && (word[1] == 'd' || word[1] == 'D')) {
    *result = strtoull(word.c_str() + 2, nullptr, 16);
    if (type == Type::f32) *result = bits(float(as_double(*result)));
    return true;
  }
  if (!isdigit(static_cast<unsigned char>(word[0])) && word[0] != '-') return false;
  const bool decimal = word.find('.') != std::string::npos;
  if (decimal || type == Type::f32 || type == Type::f64) {
    const double value = strtod(word.c_str(), nullptr);
    *result = type == Type::f32 ? bits(float(value)) : bits(value);
    return true;
  }
  char* end;
  const bool negative = word[0] == '-';
  const uint64_t value = strtoull(word.c_str() + negative, &end, 0);
  *result = negative ? -value : value;
  return *end == 0 || !strcmp(end, "U");
}

int bytes_of(Type type) {
  switch (type) {
    case Type::none: return 0;
    case Type::pred: return 4;
    case Type::b8: case Type::u8: case Type::s8: return 1;
    case Type::b16: case Type::u16: case Type::s16: case Type::f16: case Type::bf16: case Type::e4m3x2:
    case Type::e5m2x2: return 2;
    case Type::b64: case Type::u64: case Type::s64: case Type::f64: case Type::f32x2: return 8;
    case Type::b128: return 16;
    default: return 4;
  }
}

Type type_named(const std::string& name) {
  static const std::map<std::string, Type> types = {
      {"pred", Type::pred}, {"b8", Type::b8}, {"u8", Type::u8}, {"s8", Type::s8}, {"b16", Type::b16},
      {"u16", Type::u16}, {"s16", Type::s16}, {"f16", Type::f16}, {"bf16", Type::bf16}, {"b32", Type::b32},
      {"u32", Type::u32}, {"s32", Type::s32}, {"f32", Type::f32}, {"tf32", Type::tf32}, {"f16x2", Type::f16x2},
      {"bf16x2", Type::bf16x2}, {"b64", Type::b64}, {"u64", Type::u64}, {"s64", Type::s64}, {"f64", Type::f64},
      {"b128", Type::b128}, {"f32x2", Type::f32x2}, {"e4m3x2", Type::e4m3x2}, {"e5m2x2", Type::e5m2x2}};
  auto found = types.find(name);
  return found == types.end() ? Type::none : found->second;
}

}  // namespace ptx
