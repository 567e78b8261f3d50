// Graphs: captured from streams or made node by node, and replayed with other parameters.
#include "driver.h"

using namespace testcuda;

namespace {

struct Executable {
  Device* device;
  std::vector<Node> nodes;
};

struct KernelNode {
  Handle function;
  unsigned grid[3], block[3], shared;
  void **params, **extra;
  Handle kernel, context;
};

Result kernel_of_node(const KernelNode* given, Kernel* out) {
  return kernel_of(given->function, given->grid, given->block, given->shared, given->params, given->extra, out);
}

Result run(const std::vector<Node>& nodes) {
  for (const Node& node : nodes) {
    const Result r = node.type == Node::kernel ? run_kernel(node.launch) : node.run ? node.run() : kSuccess;
    if (r) return r;
  }
  return kSuccess;
}

void end_capture(Graph* graph) {
  for (Stream* stream : graph->streams) stream->capture = nullptr;
  graph->streams.clear();
}

}  // namespace

WEFT_EXPORT cuStreamBeginCapture_v2(Handle handle, int) {
  if (const Result r = in_context()) return r;
  Stream* stream = stream_of(handle);
  if (stream == nullptr) return kInvalidHandle;
  if (stream == stream->device->legacy) return kCaptureUnsupported;
  std::lock_guard<std::mutex> lock(state().mutex);
  if (stream->capture != nullptr) return kInvalidValue;
  auto* graph = new Graph;
  graph->device = stream->device;
  graph->origin = stream;
  graph->streams.push_back(stream);
  stream->capture = graph;
  return kSuccess;
}
WEFT_EXPORT cuStreamEndCapture(Handle handle, Handle* out) {
  if (const Result r = in_context()) return r;
  Stream* stream = stream_of(handle);
  if (stream == nullptr) return kInvalidHandle;
  Graph* graph;
  {
    std::lock_guard<std::mutex> lock(state().mutex);
    graph = stream->capture;
    if (graph == nullptr) return 401;
    if (graph->origin != stream) return kCaptureUnmatched;
    end_capture(graph);
  }
  *out = nullptr;
  if (graph->broken) return kCaptureInvalidated;
  *out = give(graph);
  return kSuccess;
}
WEFT_EXPORT cuStreamIsCapturing(Handle handle, int* status) {
  if (const Result r = in_context()) return r;
  Stream* stream = stream_of(handle);
  if (stream == nullptr) return kInvalidHandle;
  *status = stream->capture != nullptr;
  return kSuccess;
}
WEFT_EXPORT cuThreadExchangeStreamCaptureMode(int* mode) {
  static thread_local int here = 0;
  std::swap(*mode, here);
  return kSuccess;
}

WEFT_EXPORT cuGraphCreate(Handle* out, unsigned) {
  if (const Result r = in_context()) return r;
  auto* graph = new Graph;
  graph->device = current->device;
  *out = give(graph);
  return kSuccess;
}
WEFT_EXPORT cuGraphDestroy(Handle handle) {
  if (const Result r = ready()) return r;
  Graph* graph = alive<Graph>(handle);
  if (graph == nullptr) return kInvalidHandle;
  take_back(handle);
  for (auto& node : graph->nodes) take_back(node.get());
  delete graph;
  return kSuccess;
}
WEFT_EXPORT cuGraphAddKernelNode_v2(Handle* out, Handle handle, const Handle*, size_t, const KernelNode* given) {
  if (const Result r = in_context()) return r;
  Graph* graph = alive<Graph>(handle);
  if (graph == nullptr || given == nullptr) return kInvalidValue;
  auto node = std::make_shared<Node>();
  if (const Result r = kernel_of_node(given, &node->launch)) return r;
  node->type = Node::kernel;
  node->index = graph->nodes.size();  // nodes run in the order in which they were added
  graph->nodes.push_back(node);
  *out = give(node.get());
  return kSuccess;
}
WEFT_EXPORT cuGraphAddChildGraphNode(Handle* out, Handle handle, const Handle* after, size_t count, Handle inner) {
  if (const Result r = in_context()) return r;
  Graph *graph = alive<Graph>(handle), *child = alive<Graph>(inner);
  if (graph == nullptr || child == nullptr || graph == child) return kInvalidValue;
  for (size_t k = 0; k < count; ++k)
    if (alive<Node>(after[k]) == nullptr) return kInvalidValue;
  std::vector<Node> nodes;  // the caller may destroy its graph
  for (const auto& node : child->nodes) nodes.push_back(*node);
  auto node = std::make_shared<Node>();
  node->run = [nodes] { return run(nodes); };
  node->kind = 4;
  node->index = graph->nodes.size();
  graph->nodes.push_back(node);
  *out = give(node.get());
  return kSuccess;
}
WEFT_EXPORT cuGraphGetNodes(Handle handle, Handle* nodes, size_t* count) {
  if (const Result r = in_context()) return r;
  Graph* graph = alive<Graph>(handle);
  if (graph == nullptr || count == nullptr) return kInvalidValue;
  if (nodes == nullptr) return *count = graph->nodes.size(), kSuccess;
  for (size_t k = 0; k < *count; ++k) nodes[k] = k < graph->nodes.size() ? give(graph->nodes[k].get()) : nullptr;
  *count = std::min(*count, graph->nodes.size());
  return kSuccess;
}
WEFT_EXPORT cuGraphNodeGetType(Handle handle, int* type) {
  Node* node = alive<Node>(handle);
  if (node == nullptr) return kInvalidValue;
  *type = node->type == Node::kernel ? 0 : node->kind;
  return kSuccess;
}
WEFT_EXPORT cuGraphKernelNodeGetParams_v2(Handle handle, KernelNode* out) {
  Node* node = alive<Node>(handle);
  if (node == nullptr || node->type != Node::kernel) return kInvalidValue;
  const Kernel& k = node->launch;
  *out = {k.function, {k.grid[0], k.grid[1], k.grid[2]}, {k.block[0], k.block[1], k.block[2]}, k.shared, nullptr, nullptr,
          nullptr, nullptr};
  return kSuccess;
}
WEFT_EXPORT cuGraphKernelNodeSetParams_v2(Handle handle, const KernelNode* given) {
  Node* node = alive<Node>(handle);
  if (node == nullptr || node->type != Node::kernel) return kInvalidValue;
  return kernel_of_node(given, &node->launch);
}

WEFT_EXPORT cuGraphInstantiateWithFlags(Handle* out, Handle handle, unsigned long long) {
  if (const Result r = in_context()) return r;
  Graph* graph = alive<Graph>(handle);
  if (graph == nullptr) return kInvalidValue;
  auto* made = new Executable{graph->device, {}};
  for (const auto& node : graph->nodes) made->nodes.push_back(*node);
  *out = give(made);
  return kSuccess;
}
WEFT_EXPORT cuGraphInstantiate_v2(Handle* out, Handle graph, Handle*, char*, size_t) { return cuGraphInstantiateWithFlags(out, graph, 0); }
WEFT_EXPORT cuGraphExecDestroy(Handle handle) {
  if (const Result r = ready()) return r;
  Executable* made = alive<Executable>(handle);
  if (made == nullptr) return kInvalidHandle;
  take_back(handle);
  delete made;  // launches have copies of what they run
  return kSuccess;
}
WEFT_EXPORT cuGraphUpload(Handle handle, Handle) { return alive<Executable>(handle) ? in_context() : kInvalidValue; }
WEFT_EXPORT cuGraphLaunch(Handle handle, Handle on) {
  if (const Result r = in_context()) return r;
  Executable* made = alive<Executable>(handle);
  Stream* stream = stream_of(on);
  if (made == nullptr || stream == nullptr) return kInvalidHandle;
  return ask(stream, [nodes = made->nodes] { return run(nodes); }, 4);
}
WEFT_EXPORT cuGraphExecKernelNodeSetParams_v2(Handle handle, Handle of, const KernelNode* given) {
  if (const Result r = in_context()) return r;
  Executable* made = alive<Executable>(handle);
  Node* node = alive<Node>(of);
  if (made == nullptr || node == nullptr || node->index >= made->nodes.size()) return kInvalidValue;
  Node& here = made->nodes[node->index];
  if (here.type != Node::kernel) return kInvalidValue;
  Kernel kernel;
  if (const Result r = kernel_of_node(given, &kernel)) return r;
  here.launch = std::move(kernel);
  return kSuccess;
}
WEFT_EXPORT cuGraphExecUpdate_v2(Handle handle, Handle from, void*) {
  if (const Result r = in_context()) return r;
  Executable* made = alive<Executable>(handle);
  Graph* graph = alive<Graph>(from);
  if (made == nullptr || graph == nullptr) return kInvalidValue;
  if (graph->nodes.size() != made->nodes.size()) return kGraphUpdate;
  for (size_t k = 0; k < graph->nodes.size(); ++k)
    if (graph->nodes[k]->type != made->nodes[k].type) return kGraphUpdate;
  for (size_t k = 0; k < graph->nodes.size(); ++k) made->nodes[k] = *graph->nodes[k];
  return kSuccess;
}
