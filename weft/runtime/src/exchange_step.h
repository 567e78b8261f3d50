// What a run of a plan keeps of exchanges between processes that are on their way.
#pragma once

#include <memory>
#include <vector>

namespace weft {

struct Flight;

struct Flights {
  std::vector<std::shared_ptr<Flight>> list;  // by the number of the exchange in its plan; nullptr once it is done
  ~Flights();
};

}  // namespace weft
