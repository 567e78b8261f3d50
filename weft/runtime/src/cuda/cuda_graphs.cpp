// Graphs of kernels, made of what a plan launches and launched again with other parameters. See cuda_graphs.h.
//
// What a library launches is captured into a graph of its own, a node of the plan's. It keeps its addresses: to capture it
// again, and to change the node, would take longer than to ask the library. So a graph serves the runs whose calls of
// libraries have the addresses of its own.
#include "cuda_graphs.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>

#include "pjrt.h"

namespace weft {

using cuda::Handle;
using cuda::the_driver;

namespace {

// On an H100 a graph of ten kernels takes 430 us to make, and saves 3 us a launch: what ran a few times may run often.
// How many launches a plan has, how often they are launched by themselves first, and after how many runs whose addresses
// no graph has a second one is made: estimates.
constexpr size_t kFewestLaunches = 4, kMostLaunches = 256;
constexpr int kRunsBefore = 4, kMissesBefore = 8;
constexpr size_t kMostGraphs = 2;  // graphs of a plan: a loop that does not donate goes to and fro between two sets of addresses

cuda::KernelNode node_of(const CudaLaunch& launch) {
  return {launch.function, {launch.blocks[0], launch.blocks[1], 1}, {launch.threads, 1, 1}, launch.shared_bytes,
          launch.params,   nullptr,                                 nullptr,                nullptr};
}

// One graph, ready to be launched, and what it launches.
struct Graph {
  Handle graph = nullptr, ready = nullptr;
  std::vector<Handle> nodes;
  CudaRecording known;
  uint64_t used = 0;

  Graph() = default;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph() {  // the driver lets it end first if it runs
    if (ready != nullptr) the_driver().cuGraphExecDestroy(ready);
    if (graph != nullptr) the_driver().cuGraphDestroy(graph);
  }

  bool make(CudaDevice& device, const CudaRecording& wanted) {
    if (the_driver().cuGraphCreate(&graph, 0) != cuda::kSuccess) return false;
    std::vector<void*> pointers;
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (wanted.call(i) != nullptr ? !add_library(wanted.captured(i, device))
                                    : !add_kernel(node_of(wanted.launch(i, &pointers))))
        return false;
    }
    return the_driver().cuGraphInstantiateWithFlags(&ready, graph, 0) == cuda::kSuccess;
  }

  bool add_kernel(const cuda::KernelNode& node) {
    Handle made = nullptr;
    const size_t count = nodes.empty() ? 0 : 1;
    if (the_driver().cuGraphAddKernelNode_v2(&made, graph, last(), count, &node) != cuda::kSuccess) return false;
    nodes.push_back(made);
    return true;
  }

  bool add_library(Handle captured) {  // stolen; nullptr: there is none
    const auto add = the_driver().cuGraphAddChildGraphNode;
    Handle made = nullptr;
    const size_t count = nodes.empty() ? 0 : 1;
    const bool added = captured != nullptr && add != nullptr && add(&made, graph, last(), count, captured) == cuda::kSuccess;
    if (captured != nullptr) the_driver().cuGraphDestroy(captured);  // the node has a copy
    if (added) nodes.push_back(made);
    return added;
  }

  const Handle* last() const { return nodes.empty() ? nullptr : &nodes.back(); }

  // How many of its nodes have to be changed; kNever: one cannot be.
  static constexpr size_t kNever = SIZE_MAX;
  size_t differences(const CudaRecording& wanted) const {
    size_t count = 0;
    for (size_t i = 0; i < nodes.size(); ++i) {
      if (known.same(wanted, i)) continue;
      if (wanted.call(i) != nullptr) return kNever;
      ++count;
    }
    return count;
  }

  // Gives the graph the wanted parameters; launches that were asked for before keep theirs.
  bool change(const CudaRecording& wanted) {
    std::vector<void*> pointers;
    for (size_t i = 0; i < nodes.size(); ++i) {
      if (known.same(wanted, i)) continue;
      const cuda::KernelNode node = node_of(wanted.launch(i, &pointers));
      if (the_driver().cuGraphExecKernelNodeSetParams_v2(ready, nodes[i], &node) != cuda::kSuccess) return false;
    }
    return true;
  }
};

// Launches of this thread are written down as long as a Recording lives. It drops them at its end, unless it keeps all.
class Recording {
 public:
  explicit Recording(CudaRecording* to) : to_(to) { CudaRecording::current = to; }
  ~Recording() {
    CudaRecording::current = nullptr;
    if (!kept_) to_->clear();
  }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  void keep() { kept_ = true; }

 private:
  CudaRecording* to_;
  bool kept_ = false;
};

class CudaReplay final : public Replay {
 public:
  explicit CudaReplay(CudaDevice& device, size_t n_launches)
      : device_(device), worth_(n_launches >= kFewestLaunches && n_launches <= kMostLaunches && has_graphs()) {}
  ~CudaReplay() override {
    if (graphs_.empty()) return;
    if (is_forked_child() || !Py_IsInitialized()) {
      for (auto& graph : graphs_) graph.release();  // the process ends with them
      return;
    }
    CudaDevice::InContext here(device_);
    graphs_.clear();
  }

  Status run(const Plan& plan, Frame& frame) override {
    if (Status status = device_.begin(plan); status != Status::ok) return status;
    CudaDevice::InContext here(device_);
    std::unique_lock<std::mutex> lock(mutex_, std::defer_lock);
    if (!worth_.load(std::memory_order_relaxed) || !lock.try_lock() || ++runs_ <= kRunsBefore)
      return enqueue(plan, frame);  // another thread that runs the same plan launches its kernels by themselves
    Status status;
    {
      Recording recording(&wanted_);
      status = enqueue(plan, frame);
      if (status == Status::ok) recording.keep();
    }
    if (status == Status::no_memory) {  // of all launches at once: one by one they share working memory
      worth_.store(false);
      return enqueue(plan, frame);
    }
    if (status == Status::ok) status = replay();
    wanted_.clear();
    return status;
  }

 private:
  static bool has_graphs() {
    const char* blocking = std::getenv("CUDA_LAUNCH_BLOCKING");  // then the launch that fails is to be found
    if (blocking != nullptr && *blocking != 0 && *blocking != '0') return false;
    const cuda::Driver& driver = the_driver();
    return driver.cuGraphCreate != nullptr && driver.cuGraphAddKernelNode_v2 != nullptr &&
           driver.cuGraphInstantiateWithFlags != nullptr && driver.cuGraphExecKernelNodeSetParams_v2 != nullptr &&
           driver.cuGraphLaunch != nullptr && driver.cuGraphExecDestroy != nullptr && driver.cuGraphDestroy != nullptr;
  }

  Status enqueue(const Plan& plan, Frame& frame) {
    Status status = Status::ok;
    for (const auto& step : plan.steps)
      if (!step->enqueue(device_, frame, &status)) return Status::device_error;  // cuda_replay takes no such plan
      else if (status != Status::ok) return status;
    return Status::ok;
  }

  // Makes the launches that are written down.
  Status replay() {
    Graph* graph = ready();
    if (graph != nullptr) {
      graph->used = uint64_t(runs_);
      return device_.launch_graph(graph->ready);
    }
    std::vector<void*> pointers;
    Status status = Status::ok;
    for (size_t i = 0; i < wanted_.size() && status == Status::ok; ++i) status = wanted_.make(i, device_, &pointers);
    return status;
  }

  // The graph that launches what is wanted; nullptr: there is none.
  Graph* ready() {
    Graph* best = nullptr;
    size_t least = 0;
    for (auto& graph : graphs_) {
      const size_t count = graph->differences(wanted_);
      if (count == Graph::kNever) continue;
      if (best != nullptr && (count > least || (count == least && graph->used > best->used))) continue;
      best = graph.get();
      least = count;
    }
    if (best != nullptr && least == 0) return best;
    const bool another = best == nullptr || graphs_.size() < kMostGraphs;
    if (graphs_.empty() || (another && ++misses_ >= patience_)) {
      best = made();
      if (best == nullptr) return give_up();
    } else if (best == nullptr) {
      return nullptr;
    } else if (!best->change(wanted_)) {
      return give_up();
    }
    best->known.swap(wanted_);
    return best;
  }

  // A new graph, instead of the one that was used least lately if there are enough; nullptr: the driver makes none.
  Graph* made() {
    auto found = std::make_unique<Graph>();
    if (!found->make(device_, wanted_)) return nullptr;
    if (!graphs_.empty()) patience_ *= 2;  // addresses that never come again are worth no graphs
    misses_ = 0;
    if (graphs_.size() == kMostGraphs)
      graphs_.erase(std::ranges::min_element(graphs_, {}, [](const auto& graph) { return graph->used; }));
    graphs_.push_back(std::move(found));
    return graphs_.back().get();
  }

  Graph* give_up() {
    worth_.store(false);
    graphs_.clear();
    return nullptr;
  }

  CudaDevice& device_;
  std::atomic<bool> worth_;
  std::mutex mutex_;  // of the thread that runs it as a graph; guards
  int64_t runs_ = 0;
  int64_t misses_ = 0, patience_ = kMissesBefore;
  CudaRecording wanted_;
  std::vector<std::unique_ptr<Graph>> graphs_;
};

}  // namespace

thread_local CudaRecording* CudaRecording::current = nullptr;

void CudaRecording::add(const CudaLaunch& launch) {
  launches_.push_back({nullptr, launch.function, {launch.blocks[0], launch.blocks[1]}, launch.threads, launch.shared_bytes,
                       uint32_t(words_.size()), launch.n_params, launch.where});
  for (uint32_t i = 0; i < launch.n_params; ++i) words_.push_back(*static_cast<const int64_t*>(launch.params[i]));
}

void CudaRecording::add(const LibraryCall& call, const int64_t* words, uint32_t n_words, const char* where) {
  launches_.push_back({&call, nullptr, {}, 0, 0, uint32_t(words_.size()), n_words, where});
  words_.insert(words_.end(), words, words + n_words);
}

void CudaRecording::keep(Buffer* scratch) {
  try {
    scratch_.push_back(scratch);
  } catch (...) {
    buffer_release(scratch);
    throw;
  }
}

void CudaRecording::clear() {
  launches_.clear();
  words_.clear();
  for (Buffer* scratch : scratch_) buffer_release(scratch);
  scratch_.clear();
}

bool CudaRecording::same(const CudaRecording& other, size_t i) const {
  const Launch &one = launches_[i], &two = other.launches_[i];  // their blocks are the plan's
  return one.call == two.call && one.function == two.function &&
         std::equal(&words_[one.begin], &words_[one.begin] + one.count, &other.words_[two.begin]);
}

CudaLaunch CudaRecording::launch(size_t i, std::vector<void*>* pointers) const {
  const Launch& own = launches_[i];
  pointers->clear();
  for (uint32_t k = 0; k < own.count; ++k) pointers->push_back(const_cast<int64_t*>(&words_[own.begin + k]));
  return {own.function, {own.blocks[0], own.blocks[1]}, own.threads, own.shared_bytes, pointers->data(), own.count, own.where};
}

Handle CudaRecording::captured(size_t i, CudaDevice& device) const {
  return device.captured(*launches_[i].call, &words_[launches_[i].begin]);
}

Status CudaRecording::make(size_t i, CudaDevice& device, std::vector<void*>* pointers) const {
  const Launch& own = launches_[i];
  if (own.call == nullptr) return device.launch_kernel(launch(i, pointers));
  return device.launch_library(*own.call, &words_[own.begin], own.count, own.where);
}

void CudaRecording::swap(CudaRecording& other) {
  launches_.swap(other.launches_);
  words_.swap(other.words_);
}

std::shared_ptr<Replay> cuda_replay(CudaDevice& device, const Plan& plan) {
  size_t n_launches = 0;
  for (const auto& step : plan.steps) {
    if (step->n_launches() == 0) return nullptr;
    n_launches += step->n_launches();
  }
  return plan.steps.empty() ? nullptr : std::make_shared<CudaReplay>(device, n_launches);
}

}  // namespace weft
