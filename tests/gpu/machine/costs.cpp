// What an instruction of PTX costs on the hardware: its pipe, instructions of the machine, cycles to its result.
#include "decode.h"

namespace ptx {

void set_cost(Decoder& d) {
  Instruction& in = d.in;
  const std::string& name = d.st.name;
  const bool wide = bytes_of(in.type) == 8;
  in.slots = wide ? 2 : 1;
  if (in.flow != Flow::next) in.pipe = Pipe::control, in.slots = 1;
  if (in.pipe == Pipe::memory) in.slots = 1;
  (void)name;
}

bool decode_matrix(Decoder&) { return false; }

}  // namespace ptx
