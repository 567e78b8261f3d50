// Exchanges between processes that are on their way, as a run of a plan keeps them.
#pragma once

#include <memory>
#include <vector>

namespace weft {

struct Flight;
struct Frame;
struct Plan;

struct Flights {
  std::vector<std::shared_ptr<Flight>> list;  // by the number of the exchange in its plan; nullptr once it is done
  int done = 0;                               // how many came to their end
  ~Flights();
};

// A run that failed before all of its exchanges were done: the other processes wait for what this one will not send,
// and would take the messages of its next program for it. From now on every exchange of this process raises.
void break_off_exchanges(const Plan& plan, const Frame& frame);

}  // namespace weft
