// A PTX text to a module: variables, functions, labels, and where the two sides of a branch meet again.
#include <algorithm>
#include <cstring>

#include "decode.h"
#include "memory.h"

namespace ptx {

namespace {

class Parser {
 public:
  Parser(const std::string& text, Module& module, Memory& memory, int device)
      : words_(words_of(text)), module_(module), memory_(memory), device_(device) {}

  void run() {
    while (at_ < words_.size()) top();
    for (auto& [address, initial] : later_) {
      for (auto& [offset, name, plus, bytes] : initial) {
        uint64_t value = 0;
        if (auto found = module_.addresses.find(name); found != module_.addresses.end()) {
          value = found->second + plus;
        } else if (auto called = module_.functions.find(name); called != module_.functions.end()) {
          value = uint64_t(called->second->number);
        } else {
          fail("an initial value names " + name + ", which is not there");
        }
        memcpy(memory_.own(address + offset, bytes, true), &value, bytes);
      }
    }
    uint32_t top = module_shared_;
    for (Function* f : module_.numbered) top = std::max(top, f->shared_bytes);
    top = (top + 15) / 16 * 16;
    for (const std::string& name : dynamic_) {
      module_.addresses[name] = kSharedStart + top;
      module_.dynamic_shared = top;
    }
    for (Function* f : module_.numbered) f->shared_bytes = std::max(f->shared_bytes, dynamic_.empty() ? 0 : top);
    for (auto& body : bodies_) decode_body(body);
  }

 private:
  struct Entry {
    Statement statement;
    std::shared_ptr<Scope> scope;
  };
  struct Body {
    Function* function;
    std::vector<Entry> entries;
    std::map<std::string, uint32_t> labels;
    std::vector<std::pair<std::string, std::vector<std::string>>> targets;
  };
  struct Named {
    uint64_t offset;
    std::string name;
    uint64_t plus;
    uint64_t bytes;
  };

  [[noreturn]] void fail(const std::string& why) const {
    const int line = words_.empty() ? 0 : words_[std::min(at_, words_.size() - 1)].line;
    throw Error("text", "line " + std::to_string(line) + ": " + why);
  }
  const std::string& peek(size_t ahead = 0) const {
    if (at_ + ahead >= words_.size()) fail("the text ends too early");
    return words_[at_ + ahead].text;
  }
  std::string next() {
    std::string word = peek();
    ++at_;
    return word;
  }
  void expect(const std::string& word) {
    if (peek() != word) fail("\"" + word + "\" is expected where \"" + peek() + "\" stands");
    ++at_;
  }
  uint64_t number() {
    uint64_t value;
    if (!parse_number(peek(), Type::u64, &value)) fail("a number is expected where \"" + peek() + "\" stands");
    ++at_;
    return value;
  }

  void top() {
    const std::string word = peek();
    if (word == ".version") {
      ++at_;
      module_.version = next();
    } else if (word == ".target") {
      ++at_;
      module_.target = next();
      while (peek() == ",") at_ += 2;
    } else if (word == ".address_size") {
      ++at_;
      if (number() != 64) fail("addresses have 64 bits");
    } else if (word == ".visible" || word == ".weak" || word == ".common" || word == ".internal") {
      ++at_;
    } else if (word == ".extern") {
      ++at_;
    } else if (word == ".entry" || word == ".func") {
      function();
    } else if (word == ".global" || word == ".const" || word == ".shared") {
      variable(nullptr, nullptr);
    } else if (word == ".file" || word == ".pragma") {
      while (at_ < words_.size() && words_[at_].line == words_[at_ - 1].line) ++at_;
      ++at_;
    } else if (word == ";") {
      ++at_;
    } else {
      fail("cannot read \"" + word + "\" outside of functions");
    }
  }

  // .global .align 8 .u64 name[3] = {1, 2, other};
  void variable(Function* function, Scope* scope) {
    const std::string space = next();
    uint64_t align = 0, vector = 1;
    Type type = Type::none;
    while (peek()[0] == '.') {
      const std::string word = next();
      if (word == ".align") align = number();
      else if (word == ".v2") vector = 2;
      else if (word == ".v4") vector = 4;
      else if (word == ".attribute") while (next() != ")") {}
      else if ((type = type_named(word.substr(1))) == Type::none) fail("cannot read \"" + word + "\" of a variable");
    }
    const uint64_t element = uint64_t(bytes_of(type)) * vector;
    align = std::max(align, element);
    for (;;) {
      const std::string name = next();
      uint64_t count = 1;
      bool open = false;
      while (peek() == "[") {
        ++at_;
        if (peek() == "]") open = true;
        else count *= number();
        expect("]");
      }
      const uint64_t bytes = open ? 0 : count * element;
      if (space == ".shared") shared(function, name, bytes, align, open);
      else if (space == ".local") local(function, name, bytes, align);
      else if (space == ".param") param(function, scope, name, bytes, align);
      else module_variable(name, bytes, bytes_of(type));
      if (peek() != ",") break;
      ++at_;
    }
    expect(";");
  }

  void shared(Function* function, const std::string& name, uint64_t bytes, uint64_t align, bool open) {
    uint32_t& top = function ? function->shared_bytes : module_shared_;
    if (function && top < module_shared_) top = module_shared_;
    const std::string key = function ? function->name + "/" + name : name;
    if (open) {
      dynamic_.push_back(key);
      module_.addresses[key] = 0;  // behind the others: where each launch has it, all functions agree
      return;
    }
    top = uint32_t((top + align - 1) / align * align);
    module_.addresses[key] = kSharedStart + top;
    top += uint32_t(bytes);
  }
  void local(Function* function, const std::string& name, uint64_t bytes, uint64_t align) {
    if (!function) fail("local variables lie in functions");
    function->frame_bytes = uint32_t((function->frame_bytes + align - 1) / align * align);
    module_.addresses[function->name + "/" + name] = function->frame_bytes;
    module_.locals.insert(function->name + "/" + name);
    function->frame_bytes += uint32_t(bytes);
  }
  void param(Function* function, Scope* scope, const std::string& name, uint64_t bytes, uint64_t align) {
    align = std::max<uint64_t>(align, 8);
    function->frame_bytes = uint32_t((function->frame_bytes + align - 1) / align * align);
    scope->params[name] = function->frame_bytes;
    scope->param_bytes[name] = uint32_t(bytes);
    function->frame_bytes += uint32_t(bytes);
  }

  void module_variable(const std::string& name, uint64_t bytes, uint64_t element) {
    const uint64_t address = memory_.allocate(device_, bytes);
    if (!address) fail("the device has no room for " + name);
    module_.allocations.push_back(address);
    module_.addresses[name] = address;
    module_.sizes[name] = bytes;
    char* own = memory_.own(address, bytes, true);
    memset(own, 0, bytes);
    if (peek() != "=") return;
    ++at_;
    uint64_t offset = 0;
    int depth = 0;
    do {
      const std::string word = next();
      uint64_t value;
      if (word == "{") ++depth;
      else if (word == "}") --depth;
      else if (word == ",") continue;
      else if (word == "generic") { expect("("); initial(address, offset, element); expect(")"); offset += element; }
      else if (parse_number(word, element == 8 ? Type::b64 : Type::b32, &value)) {
        memcpy(own + offset, &value, element);
        offset += element;
      } else { --at_; initial(address, offset, element); offset += element; }
    } while (depth > 0);
  }
  void initial(uint64_t address, uint64_t offset, uint64_t element) {
    const std::string name = next();
    uint64_t plus = 0;
    if (peek() == "+") {
      ++at_;
      plus = number();
    }
    later_[address].push_back({offset, name, plus, element});
  }

  std::vector<Parameter> parameters(uint32_t* top) {
    std::vector<Parameter> result;
    expect("(");
    while (peek() != ")") {
      Parameter p;
      uint64_t align = 1;
      Type type = Type::none;
      while (peek()[0] == '.') {
        const std::string word = next();
        if (word == ".align") align = number();
        else if (word == ".ptr") { while (peek() == ".global" || peek() == ".shared" || peek() == ".const" || peek() == ".local") ++at_; if (peek() == ".align") at_ += 2; }
        else if (word == ".param" || word == ".reg") continue;
        else if (type_named(word.substr(1)) != Type::none) type = type_named(word.substr(1));
        else fail("cannot read \"" + word + "\" of a parameter");
      }
      p.name = next();
      uint64_t count = 1;
      if (peek() == "[") {
        ++at_;
        if (peek() != "]") count = number();
        if (count == 0) fail("a parameter of no bytes");
        expect("]");
      }
      p.bytes = uint32_t(count * uint64_t(bytes_of(type)));
      align = std::max<uint64_t>(align, uint64_t(bytes_of(type)));
      *top = uint32_t((*top + align - 1) / align * align);
      p.offset = *top;
      *top += p.bytes;
      result.push_back(p);
      if (peek() == ",") ++at_;
    }
    ++at_;
    return result;
  }

  void function() {
    const bool entry = next() == ".entry";
    uint32_t top = 0, inputs = 0;
    std::vector<Parameter> outputs;
    if (!entry && peek() == "(") outputs = parameters(&top);
    const std::string name = next();
    auto& slot = module_.functions[name];
    if (!slot) {
      slot = std::make_unique<Function>();
      slot->number = int(module_.numbered.size()) + 0x100;
      module_.numbered.push_back(slot.get());
    }
    Function& f = *slot;
    f.name = name;
    f.entry = entry;
    f.outputs = outputs;
    inputs = entry ? 0 : top;
    f.inputs.clear();
    if (peek() == "(") f.inputs = parameters(&inputs);
    f.input_bytes = inputs;
    if (!entry) f.frame_bytes = (inputs + 15) / 16 * 16;
    while (peek()[0] == '.') {
      const std::string word = next();
      auto numbers = [&] {
        std::vector<uint64_t> values{number()};
        while (peek() == ",") {
          ++at_;
          values.push_back(number());
        }
        return values;
      };
      if (word == ".maxntid") {
        f.max_threads = 1;
        for (uint64_t n : numbers()) f.max_threads *= uint32_t(n);
      } else if (word == ".reqntid") {
        auto values = numbers();
        values.resize(3, 1);
        for (int k = 0; k < 3; ++k) f.required[k] = uint32_t(values[size_t(k)]);
      } else if (word == ".minnctapersm") {
        f.min_blocks = uint32_t(number());
      } else if (word == ".maxnreg" || word == ".maxclusterrank") {
        number();
      } else if (word == ".noreturn") {
      } else if (word == ".pragma") {
        while (next() != ";") {}
      } else {
        fail("the machine does not know \"" + word + "\" of a function");
      }
    }
    if (peek() == ";") {
      ++at_;
      return;
    }
    f.defined = true;
    body(f);
  }

  void body(Function& f) {
    expect("{");
    bodies_.push_back({&f, {}, {}, {}});
    Body& body = bodies_.back();
    auto scope = std::make_shared<Scope>();
    for (const Parameter& output : f.outputs) {
      scope->params[output.name] = output.offset;
      scope->param_bytes[output.name] = output.bytes;
    }
    int depth = 1;
    while (depth > 0) {
      const std::string word = peek();
      if (word == "{") {
        auto inner = std::make_shared<Scope>();
        inner->outer = scope;
        scope = inner;
        ++depth;
        ++at_;
      } else if (word == "}") {
        scope = scope->outer;
        --depth;
        ++at_;
      } else if (word == ";") {
        ++at_;
      } else if (word == ".reg") {
        ++at_;
        registers(*scope);
      } else if (word == ".local" || word == ".shared" || word == ".param") {
        variable(&f, scope.get());
      } else if (word == ".pragma") {
        while (next() != ";") {}
      } else if (word == ".loc") {
        const int line = words_[at_].line;
        while (words_[at_].line == line) ++at_;
      } else if (peek(1) == ":") {
        at_ += 2;
        if (peek() == ".branchtargets") {
          ++at_;
          std::vector<std::string> names;
          while (peek() != ";")
            if (const std::string name = next(); name != ",") names.push_back(name);
          body.targets.push_back({word, names});
        } else if (peek() == ".callprototype") {
          ++at_;
          prototype(*scope, word);
        } else {
          body.labels[word] = uint32_t(body.entries.size());
        }
      } else if (peek(0) == "prototype") {
        fail("a prototype is expected to have a label");
      } else {
        const size_t from = at_;
        while (peek() != ";") ++at_;
        body.entries.push_back({statement_of(words_, from, at_), scope});
        ++at_;
      }
    }
  }

  // () _ (.param .b64 _) or (.param .b32 _) _ (...)
  void prototype(Scope& scope, const std::string& label) {
    uint32_t top = 0;
    std::vector<Parameter> out, in;
    if (peek() == "(") out = parameters(&top);
    next();
    top = 0;
    if (peek() == "(") in = parameters(&top);
    while (peek() != ";") ++at_;
    auto& sizes = scope.prototypes[label];
    for (const Parameter& p : out) sizes.first.push_back(p.bytes);
    for (const Parameter& p : in) sizes.second.push_back(p.bytes);
  }

  void registers(Scope& scope) {
    const Type type = type_named(next().substr(1));
    if (type == Type::none) fail("registers of no type that the machine knows");
    for (;;) {
      const std::string name = next();
      if (peek() == "<") {
        ++at_;
        number();
        expect(">");
        scope.families[name] = type;
      } else {
        scope.names[name] = type;
      }
      if (next() != ",") break;
    }
  }

  void decode_body(Body& body);

  std::vector<Word> words_;
  size_t at_ = 0;
  Module& module_;
  Memory& memory_;
  int device_;
  uint32_t module_shared_ = 0;
  std::vector<std::string> dynamic_;
  std::map<uint64_t, std::vector<Named>> later_;
  std::vector<Body> bodies_;
};

// The block that every way from a block to the end passes first.
std::vector<int> post_dominators(const std::vector<std::vector<int>>& successors) {
  const int n = int(successors.size());  // the last one is the end
  std::vector<std::vector<int>> before(size_t(n), std::vector<int>{});
  for (int b = 0; b < n; ++b)
    for (int s : successors[size_t(b)]) before[size_t(s)].push_back(b);
  std::vector<int> order, number(size_t(n), -1), stack{n - 1};  // postorder from the end, backwards
  std::vector<size_t> next(size_t(n), 0);
  std::vector<bool> seen(size_t(n), false);
  seen[size_t(n - 1)] = true;
  while (!stack.empty()) {
    const size_t b = size_t(stack.back());
    if (next[b] < before[b].size()) {
      const int p = before[b][next[b]++];
      if (!seen[size_t(p)]) {
        seen[size_t(p)] = true;
        stack.push_back(p);
      }
    } else {
      number[b] = int(order.size());
      order.push_back(int(b));
      stack.pop_back();
    }
  }
  std::vector<int> idom(size_t(n), -1);
  idom[size_t(n - 1)] = n - 1;
  for (bool changed = true; changed;) {
    changed = false;
    for (int k = int(order.size()) - 2; k >= 0; --k) {
      const int b = order[size_t(k)];
      int found = -1;
      for (int s : successors[size_t(b)]) {
        if (idom[size_t(s)] < 0) continue;
        if (found < 0) {
          found = s;
          continue;
        }
        int x = found, y = s;
        while (x != y) {
          while (number[size_t(x)] < number[size_t(y)]) x = idom[size_t(x)];
          while (number[size_t(y)] < number[size_t(x)]) y = idom[size_t(y)];
        }
        found = x;
      }
      if (found >= 0 && idom[size_t(b)] != found) {
        idom[size_t(b)] = found;
        changed = true;
      }
    }
  }
  for (int& d : idom)
    if (d < 0) d = n - 1;  // a loop without an end
  return idom;
}

void find_meetings(Function& f) {
  const uint32_t size = uint32_t(f.code.size()), end = size - 1;
  std::vector<bool> leads(size + 1, false);
  leads[0] = leads[end] = true;
  for (uint32_t k = 0; k < size; ++k) {
    const Instruction& in = f.code[k];
    if (in.flow == Flow::next || in.flow == Flow::call) continue;
    leads[k + 1] = true;
    if (in.flow == Flow::jump && in.target == k + 1) f.code[k].slots = 0;  // ptxas leaves it out
    if (in.flow == Flow::jump || in.flow == Flow::branch) leads[in.target] = true;
    if (in.flow == Flow::table)
      for (uint32_t t : f.tables[in.extra]) leads[t] = true;
  }
  std::vector<int> block(size, 0);
  std::vector<uint32_t> starts;
  for (uint32_t k = 0; k < size; ++k) {
    if (leads[k]) starts.push_back(k);
    block[k] = int(starts.size()) - 1;
  }
  std::vector<std::vector<int>> successors(starts.size());
  for (size_t b = 0; b + 1 < starts.size(); ++b) {
    const uint32_t last = starts[b + 1] - 1;
    const Instruction& in = f.code[last];
    auto& to = successors[b];
    if (in.flow == Flow::stop) to.push_back(block[end]);
    if (in.flow == Flow::jump || in.flow == Flow::branch) to.push_back(block[in.target]);
    if (in.flow == Flow::table)
      for (uint32_t t : f.tables[in.extra]) to.push_back(block[t]);
    if (in.flow == Flow::next || in.flow == Flow::call || in.flow == Flow::branch || (in.flow == Flow::stop && in.guard))
      to.push_back(int(b) + 1);
  }
  const std::vector<int> meeting = post_dominators(successors);
  for (size_t b = 0; b + 1 < starts.size(); ++b) {
    Instruction& in = f.code[starts[b + 1] - 1];
    in.meet = starts[size_t(meeting[b])];
    if (in.flow == Flow::branch || in.flow == Flow::table) f.code[in.meet].join = true;
  }
  f.code[end].join = true;
}

void Parser::decode_body(Body& body) {
  Function& f = *body.function;
  const uint32_t end = uint32_t(body.entries.size());
  std::map<std::pair<uint64_t, int>, uint32_t> constants;
  std::map<std::string, uint32_t> tables;
  for (auto& [name, labels] : body.targets) {
    tables[name] = uint32_t(f.tables.size());
    f.tables.emplace_back();
    for (const std::string& label : labels) {
      if (!body.labels.count(label)) throw Error("text", f.name + ": there is no label " + label);
      f.tables.back().push_back(body.labels[label]);
    }
  }
  f.code.resize(end + 1);
  for (uint32_t k = 0; k < end; ++k) {
    Decoder d{module_, f, body.entries[k].statement, f.code[k], body.entries[k].scope, body.labels, constants, tables};
    d.end = end;
    decode(d);
  }
  Instruction& last = f.code[end];
  last.flow = Flow::end;
  last.run = run_end;
  last.text = "the end of " + f.name;
  last.line = end ? f.code[end - 1].line : 0;
  // LLVM's loop of compare and exchange begins with a plain load, of which a wrong value does no harm
  for (uint32_t k = 0; k < end; ++k) {
    const Instruction& in = f.code[k];
    if (in.text.find("atom.") == std::string::npos || in.text.find(".cas.") == std::string::npos) continue;
    for (uint32_t j = k < 60 ? 0 : k - 60; j < k; ++j) {
      Instruction& before = f.code[j];
      if (before.text.rfind("ld.", 0) == 0 && before.s[0] == in.s[0] && before.offset == in.offset) before.strong = true;
    }
  }
  for (const Instruction& in : f.code) {
    const uint8_t bytes = uint8_t(std::max(1, bytes_of(in.type)));
    if (in.space == Space::shared) f.shared_grain = std::min(f.shared_grain, bytes);
    if (in.space == Space::global) f.global_grain = std::min(f.global_grain, bytes);
    if (in.space == Space::generic && in.pipe == Pipe::memory) {
      f.shared_grain = std::min(f.shared_grain, bytes);
      f.global_grain = std::min(f.global_grain, bytes);
    }
    if (in.strong || in.flow == Flow::call) f.waits = true;
  }
  find_meetings(f);
}

}  // namespace

std::unique_ptr<Module> load(const std::string& text, Memory& memory, int device, bool approximate) {
  auto module = std::make_unique<Module>();
  module->approximate = approximate;
  try {
    Parser(text, *module, memory, device).run();
  } catch (...) {
    for (uint64_t address : module->allocations) memory.release(address);
    throw;
  }
  return module;
}

}  // namespace ptx
