// Pytrees: flatten, unflatten, flatten up to a prefix, map.
#include "pytree.h"

#include <pthread.h>

#include <string_view>

#include "module.h"

namespace weft {
namespace {

PyObject* mismatch_hook = nullptr;  // owned; tree_map calls it before raising its own ValueError

// Owned references that are released unless the vector is emptied first.
struct OwnedVector {
  std::vector<PyObject*> items;
  ~OwnedVector() {
    for (PyObject* item : items) Py_DECREF(item);
  }
};

struct OwnedNodes {
  std::vector<Node> nodes;
  ~OwnedNodes() { release_nodes(nodes); }
};

// ---- flatten ----

// The state of one flatten. With keys, path holds the keys down to the current node, and paths has one tuple per leaf.
struct Flattening {
  std::vector<Node>& nodes;
  std::vector<PyObject*>& leaves;
  PyObject* predicate;  // borrowed or nullptr
  bool with_keys = false;
  bool predicate_takes_path = false;
  std::vector<PyObject*> path = {};   // borrowed keys
  std::vector<PyObject*> paths = {};  // owned tuples
};

PyObject* path_tuple(const std::vector<PyObject*>& path) {
  PyObject* tuple = PyTuple_New(static_cast<Py_ssize_t>(path.size()));
  for (size_t i = 0; tuple != nullptr && i < path.size(); ++i) PyTuple_SET_ITEM(tuple, i, Py_NewRef(path[i]));
  return tuple;
}

// Result of the predicate, 1 or 0; -1 with an error set.
int is_leaf_by_predicate(Flattening& state, PyObject* tree) {
  Ref result;
  if (state.predicate_takes_path) {
    Ref path = steal(path_tuple(state.path));
    if (!path) return -1;
    PyObject* args[] = {path.get(), tree};
    result = steal(in_python<PyObject_Vectorcall>(state.predicate, args, 2, nullptr));
  } else {
    result = steal(in_python<PyObject_CallOneArg>(state.predicate, tree));
  }
  if (!result) return -1;
  if (result.get() == Py_True) return 1;
  if (result.get() == Py_False) return 0;
  int truth = -1;  // numpy.bool and similar types are booleans too; anything else is an error
  const char* name = Py_TYPE(result.get())->tp_name;
  if (std::string_view(name) == "numpy.bool" || std::string_view(name) == "numpy.bool_")
    truth = in_python<PyObject_IsTrue>(result.get());
  else
    PyErr_Format(PyExc_ValueError, "is_leaf predicate returned a non-boolean value %R; expected a boolean",
                 result.get());
  return truth;
}

int flatten_leaf(Flattening& state, PyObject* leaf) {
  if (state.with_keys) {
    PyObject* path = path_tuple(state.path);
    if (path == nullptr) return -1;
    state.paths.push_back(path);
  }
  state.leaves.push_back(Py_NewRef(leaf));
  state.nodes.push_back(Node{NodeKind::kLeaf, 0, nullptr, nullptr, 1, 1});
  return 0;
}

int flatten_into(Flattening& state, PyObject* tree);

int flatten_children(Flattening& state, PyObject* tree, const Opened& opened) {
  Ref keys;
  if (state.with_keys && !(keys = steal(child_keys(tree, opened)))) return -1;
  for (Py_ssize_t i = 0; i < opened.arity; ++i) {
    if (keys) state.path.push_back(PyList_GET_ITEM(keys.get(), i));
    int status = flatten_into(state, PyTuple_GET_ITEM(opened.children.get(), i));
    if (keys) state.path.pop_back();
    if (status < 0) return -1;
  }
  return 0;
}

int flatten_into(Flattening& state, PyObject* tree) {
  if (state.predicate != nullptr) {
    int leaf = is_leaf_by_predicate(state, tree);
    if (leaf != 0) return leaf < 0 ? -1 : flatten_leaf(state, tree);
  }
  const Registration* registration;
  if (kind_of(tree, &registration) == NodeKind::kLeaf) return flatten_leaf(state, tree);
  RecursionGuard guard(" in flatten; PyTree may have cyclical node references.");
  if (guard.failed()) return -1;
  Opened opened;
  if (!open_node(tree, opened)) return -1;
  if (opened.kind == NodeKind::kLeaf) return flatten_leaf(state, tree);  // its class was changed meanwhile
  size_t first_node = state.nodes.size(), first_leaf = state.leaves.size();
  if (opened.arity > 0 && flatten_children(state, tree, opened) < 0) return -1;
  state.nodes.push_back(Node{opened.kind, opened.arity, opened.data.release(), opened.registration,
                             static_cast<int64_t>(state.leaves.size() - first_leaf),
                             static_cast<int64_t>(state.nodes.size() - first_node + 1)});
  return 0;
}

// Owned list; takes over the references in `items`.
PyObject* list_of_owned(std::vector<PyObject*>& items) {
  PyObject* list = PyList_New(static_cast<Py_ssize_t>(items.size()));
  if (list == nullptr) return nullptr;
  for (size_t i = 0; i < items.size(); ++i) PyList_SET_ITEM(list, i, items[i]);
  items.clear();
  return list;
}

PyObject* pair_of(PyObject* first_owned, PyObject* second_owned) {
  Ref first = steal(first_owned), second = steal(second_owned);
  return first && second ? PyTuple_Pack(2, first.get(), second.get()) : nullptr;
}

// Reads (tree, is_leaf=None); the predicate becomes nullptr for None.
bool parse_tree(PyObject* args, PyObject* kwargs, const char* format, PyObject** tree, PyObject** predicate) {
  static const char* names[] = {"tree", "is_leaf", nullptr};
  *predicate = nullptr;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, format, const_cast<char**>(names), tree, predicate)) return false;
  if (*predicate == Py_None) *predicate = nullptr;
  if (*predicate == nullptr || PyCallable_Check(*predicate)) return true;
  PyErr_Format(PyExc_TypeError, "[tree] is_leaf must be a function or None, got %R", *predicate);
  return false;
}

PyObject* py_flatten(PyObject*, PyObject* args, PyObject* kwargs) {
  PyObject *tree, *predicate;
  if (!parse_tree(args, kwargs, "O|O:tree_flatten", &tree, &predicate)) return nullptr;
  OwnedVector leaves;
  Ref treedef = steal(reinterpret_cast<PyObject*>(pytree_flatten(tree, leaves.items, predicate)));
  if (!treedef) return nullptr;
  return pair_of(list_of_owned(leaves.items), treedef.release());
}

PyObject* py_leaves(PyObject*, PyObject* args, PyObject* kwargs) {
  PyObject *tree, *predicate;
  if (!parse_tree(args, kwargs, "O|O:tree_leaves", &tree, &predicate)) return nullptr;
  OwnedVector leaves;
  OwnedNodes nodes;
  Flattening state{nodes.nodes, leaves.items, predicate};
  return flatten_into(state, tree) < 0 ? nullptr : list_of_owned(leaves.items);
}

PyObject* py_structure(PyObject*, PyObject* args, PyObject* kwargs) {
  PyObject *tree, *predicate;
  if (!parse_tree(args, kwargs, "O|O:tree_structure", &tree, &predicate)) return nullptr;
  OwnedVector leaves;
  return reinterpret_cast<PyObject*>(pytree_flatten(tree, leaves.items, predicate));
}

PyObject* py_flatten_with_path(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"tree", "is_leaf", "is_leaf_takes_path", nullptr};
  PyObject *tree, *predicate = Py_None;
  int takes_path = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|Op:tree_flatten_with_path", const_cast<char**>(names), &tree,
                                   &predicate, &takes_path))
    return nullptr;
  OwnedVector leaves, paths;
  OwnedNodes nodes;
  Flattening state{nodes.nodes, leaves.items, predicate == Py_None ? nullptr : predicate, true, takes_path != 0};
  int status = flatten_into(state, tree);
  paths.items.swap(state.paths);
  if (status < 0) return nullptr;
  Ref entries = steal(PyList_New(static_cast<Py_ssize_t>(leaves.items.size())));
  for (size_t i = 0; entries && i < leaves.items.size(); ++i) {
    PyObject* entry = PyTuple_Pack(2, paths.items[i], leaves.items[i]);
    if (entry == nullptr) return nullptr;
    PyList_SET_ITEM(entries.get(), i, entry);
  }
  return entries ? pair_of(entries.release(), reinterpret_cast<PyObject*>(make_treedef(nodes.nodes))) : nullptr;
}

// True if no item of the iterable is a container.
PyObject* py_all_leaves(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"iterable", "is_leaf", nullptr};
  PyObject *iterable, *predicate = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O:all_leaves", const_cast<char**>(names), &iterable, &predicate))
    return nullptr;
  Ref items = steal(in_python<PySequence_Tuple>(iterable));
  if (!items) return nullptr;
  OwnedVector leaves;
  OwnedNodes nodes;
  Flattening state{nodes.nodes, leaves.items, predicate == Py_None ? nullptr : predicate};
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items.get()); ++i) {
    PyObject* item = PyTuple_GET_ITEM(items.get(), i);
    int leaf = state.predicate == nullptr ? 0 : is_leaf_by_predicate(state, item);
    if (leaf < 0) return nullptr;
    const Registration* registration;
    if (leaf == 0 && kind_of(item, &registration) != NodeKind::kLeaf) Py_RETURN_FALSE;
  }
  Py_RETURN_TRUE;
}

// ---- flatten up to ----

PyObject* arity_mismatch(const char* what, const char* lower, int64_t got, int64_t expected, PyObject* tree) {
  return PyErr_Format(PyExc_ValueError, "%s arity mismatch: %lld != %lld; %s: %R.", what, static_cast<long long>(got),
                      static_cast<long long>(expected), lower, tree);
}

// Each check returns true, or false with ValueError (or an error of a comparison) set.
bool check_custom(const Node& node, PyObject* tree, const Opened& opened) {
  bool dataclass = node.kind == NodeKind::kDataclass;
  if (opened.registration != node.registration) {
    PyErr_Format(PyExc_ValueError, "Custom %snode type mismatch: expected type: %R, value: %R.",
                 dataclass ? "dataclass " : "", node.registration->type, tree);
    return false;
  }
  int same = in_python<PyObject_RichCompareBool>(node.data, opened.data.get(), Py_EQ);
  if (same < 0) return false;
  if (same == 0) {
    PyErr_Format(PyExc_ValueError, "Mismatch custom %snode data: %R != %R; value: %R.", dataclass ? "dataclass " : "",
                 node.data, opened.data.get(), tree);
    return false;
  }
  if (opened.arity == node.arity) return true;
  return arity_mismatch("Custom node", "value", opened.arity, node.arity, tree) != nullptr;
}

bool check_dict(const Node& node, const Opened& opened) {
  int same = in_python<PyObject_RichCompareBool>(node.data, opened.data.get(), Py_EQ);
  if (same != 0) return same > 0;
  Ref expected = steal(in_python<PySequence_List>(node.data)), present = steal(in_python<PySequence_List>(opened.data.get()));
  if (expected && present)
    PyErr_Format(PyExc_ValueError, "Dict key mismatch; expected keys: %R; present keys: %R.", expected.get(),
                 present.get());
  return false;
}

bool check_node(const Node& node, PyObject* tree, const Opened& opened) {
  if (node.kind == NodeKind::kCustom || node.kind == NodeKind::kDataclass) return check_custom(node, tree, opened);
  static constexpr const char* kExpected[] = {nullptr,
                                              "Expected None, got %R.",
                                              "Expected tuple, got %R.",
                                              "Expected list, got %R.",
                                              "Expected dict, got %R.",
                                              "Expected named tuple, got %R."};
  if (node.kind != opened.kind)
    return PyErr_Format(PyExc_ValueError, kExpected[static_cast<int>(node.kind)], tree) != nullptr;
  if (node.kind == NodeKind::kDict) return check_dict(node, opened);
  if (node.kind == NodeKind::kNamedTuple && node.data != opened.data.get()) {
    PyErr_Format(PyExc_ValueError, "Named tuple type mismatch: expected type: %R, tuple: %R.", node.data, tree);
    return false;
  }
  if (node.arity == opened.arity) return true;
  bool list = node.kind == NodeKind::kList;
  arity_mismatch(list                            ? "List"
                 : node.kind == NodeKind::kTuple ? "Tuple"
                                                 : "Named tuple",
                 list ? "list" : "tuple", opened.arity, node.arity, tree);
  return false;
}

// Opening a tree of another type may run user code or fail with its own error: check types first.
bool open_like(const Node& node, PyObject* tree, Opened& opened) {
  opened.kind = kind_of(tree, &opened.registration);
  if (opened.kind != node.kind || opened.registration != node.registration) return true;
  return open_node(tree, opened);
}

// Fills the leaves of the subtree at nodes[root] from right to left; *next is one past the next free index of the list.
int up_to(const PyTreeDef* treedef, int64_t root, PyObject* tree, PyObject* leaves, Py_ssize_t* next) {
  const Node& node = treedef->nodes[root];
  if (node.kind == NodeKind::kLeaf) {
    PyList_SET_ITEM(leaves, --*next, Py_NewRef(tree));
    return 0;
  }
  RecursionGuard guard(" in flatten_up_to; PyTree may have cyclical node references.");
  if (guard.failed()) return -1;
  Opened opened;
  if (!open_like(node, tree, opened) || !check_node(node, tree, opened)) return -1;
  int64_t child = root - 1;
  for (int64_t i = node.arity - 1; i >= 0; --i) {
    if (up_to(treedef, child, PyTuple_GET_ITEM(opened.children.get(), i), leaves, next) < 0) return -1;
    child -= treedef->nodes[child].num_nodes;
  }
  return 0;
}

// ---- unflatten ----

PyObject* py_unflatten(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"treedef", "leaves", nullptr};
  PyObject *treedef, *leaves;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O:tree_unflatten", const_cast<char**>(names), PyTreeDefType,
                                   &treedef, &leaves))
    return nullptr;
  return treedef_unflatten(treedef, leaves);
}

// ---- map ----

// The hook raises an error with the key path. If there is no hook, or it returns, the plain ValueError stays.
void report_mismatch(PyObject* tree, PyObject* other, PyObject* predicate, Py_ssize_t position) {
  if (mismatch_hook == nullptr || !PyErr_ExceptionMatches(PyExc_ValueError)) return;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  Ref result =
      steal(in_python<PyObject_CallFunction>(mismatch_hook, "OOOn", tree, other, predicate ? predicate : Py_None, position));
  if (result) {
    PyErr_Restore(type, value, traceback);
    return;
  }
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(traceback);
}

// Calls function on the i-th leaf of every tree, for all i; appends the results (owned).
int map_leaves(PyObject* function, const std::vector<PyObject*>& leaves, const std::vector<PyObject*>& rest,
               std::vector<PyObject*>& results) {
  std::vector<PyObject*> storage(rest.size() + 2);
  PyObject** args = storage.data() + 1;  // the vectorcall protocol lets the callee use the slot before the arguments
  results.reserve(leaves.size());
  for (size_t i = 0; i < leaves.size(); ++i) {
    args[0] = leaves[i];
    for (size_t k = 0; k < rest.size(); ++k) args[k + 1] = PyList_GET_ITEM(rest[k], i);
    size_t given = (rest.size() + 1) | PY_VECTORCALL_ARGUMENTS_OFFSET;
    PyObject* result = in_python<PyObject_Vectorcall>(function, args, given, nullptr);
    if (result == nullptr) return -1;
    results.push_back(result);
  }
  return 0;
}

PyObject* map_trees(PyObject* function, PyObject* const* trees, Py_ssize_t count, PyObject* predicate) {
  OwnedVector leaves, rest, results;
  leaves.items.reserve(64);
  Owned<PyTreeDef> treedef = Owned<PyTreeDef>::steal(pytree_flatten(trees[0], leaves.items, predicate));
  if (!treedef) return nullptr;
  for (Py_ssize_t i = 1; i < count; ++i) {
    PyObject* subtrees = pytree_flatten_up_to(treedef.get(), trees[i]);
    if (subtrees == nullptr) {
      report_mismatch(trees[0], trees[i], predicate, i);
      return nullptr;
    }
    rest.items.push_back(subtrees);
  }
  if (map_leaves(function, leaves.items, rest.items, results.items) < 0) return nullptr;
  return pytree_unflatten(treedef.get(), results.items.data());
}

// tree_map(f, tree, *rest, is_leaf=None). f and tree may be keywords, as in JAX.
PyObject* py_map(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* keywords) {
  PyObject* predicate = nullptr;
  PyObject* function = count > 0 ? args[0] : nullptr;
  PyObject* keyword_tree = nullptr;
  for (Py_ssize_t i = 0; keywords != nullptr && i < PyTuple_GET_SIZE(keywords); ++i) {
    PyObject *name = PyTuple_GET_ITEM(keywords, i), *value = args[count + i];
    if (PyUnicode_CompareWithASCIIString(name, "is_leaf") == 0) predicate = value == Py_None ? nullptr : value;
    else if (PyUnicode_CompareWithASCIIString(name, "f") == 0 && count == 0) function = value;
    else if (PyUnicode_CompareWithASCIIString(name, "tree") == 0 && count <= 1) keyword_tree = value;
    else return PyErr_Format(PyExc_TypeError, "tree_map() got an unexpected keyword argument '%U'", name);
  }
  if (function == nullptr || (count < 2 && keyword_tree == nullptr)) {
    PyErr_SetString(PyExc_TypeError, "tree_map() takes a function and at least one tree");
    return nullptr;
  }
  if (!PyCallable_Check(function)) return PyErr_Format(PyExc_TypeError, "[tree_map] %R is not callable", function);
  if (predicate != nullptr && !PyCallable_Check(predicate))
    return PyErr_Format(PyExc_TypeError, "[tree_map] is_leaf must be a function or None, got %R", predicate);
  if (keyword_tree != nullptr) return map_trees(function, &keyword_tree, 1, predicate);
  return map_trees(function, args + 1, count - 1, predicate);
}

PyObject* py_set_mismatch_hook(PyObject*, PyObject* hook) {
  if (hook != Py_None && !PyCallable_Check(hook))
    return PyErr_Format(PyExc_TypeError, "[set_mismatch_hook] %R is not callable", hook);
  PyObject* old = std::exchange(mismatch_hook, hook == Py_None ? nullptr : Py_NewRef(hook));
  Py_XDECREF(old);
  Py_RETURN_NONE;
}

PyMethodDef kFunctions[] = {
    {"tree_flatten", reinterpret_cast<PyCFunction>(entry_point<py_flatten>), METH_VARARGS | METH_KEYWORDS,
     "tree_flatten(tree, is_leaf=None) -> (list of leaves, treedef)."},
    {"tree_leaves", reinterpret_cast<PyCFunction>(entry_point<py_leaves>), METH_VARARGS | METH_KEYWORDS,
     "tree_leaves(tree, is_leaf=None) -> list of leaves."},
    {"tree_structure", reinterpret_cast<PyCFunction>(entry_point<py_structure>), METH_VARARGS | METH_KEYWORDS,
     "tree_structure(tree, is_leaf=None) -> treedef."},
    {"tree_flatten_with_path", reinterpret_cast<PyCFunction>(entry_point<py_flatten_with_path>), METH_VARARGS | METH_KEYWORDS,
     "tree_flatten_with_path(tree, is_leaf=None, is_leaf_takes_path=False) -> (list of (path, leaf), treedef)."},
    {"tree_unflatten", reinterpret_cast<PyCFunction>(entry_point<py_unflatten>), METH_VARARGS | METH_KEYWORDS,
     "tree_unflatten(treedef, leaves) -> tree."},
    {"tree_map", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(entry_point<py_map>)), METH_FASTCALL | METH_KEYWORDS,
     "tree_map(f, tree, *rest, is_leaf=None) -> tree of f(leaf, ...)."},
    {"all_leaves", reinterpret_cast<PyCFunction>(entry_point<py_all_leaves>), METH_VARARGS | METH_KEYWORDS,
     "all_leaves(iterable, is_leaf=None): True if no item is a container."},
    {"set_mismatch_hook", py_set_mismatch_hook, METH_O,
     "set_mismatch_hook(hook): hook(tree, other, is_leaf, position) raises tree_map's structure errors."},
    {},
};

// Nested levels of this thread. Python 3.12 and later do not count C calls in the recursion limit.
thread_local int t_levels = 0;
constexpr uintptr_t kStackReserve = 128 << 10;  // stack left for Python code that we call

// The lowest stack address that nested levels of this thread may reach; 0 if unknown.
uintptr_t find_stack_limit() {
#ifdef __linux__
  pthread_attr_t attributes;
  void* lowest = nullptr;
  size_t size = 0;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return 0;
  int status = pthread_attr_getstack(&attributes, &lowest, &size);
  pthread_attr_destroy(&attributes);
  return status == 0 ? reinterpret_cast<uintptr_t>(lowest) + kStackReserve : 0;
#else
  return 0;
#endif
}

}  // namespace

int enter_nested(const char* where) {
  static thread_local uintptr_t limit = find_stack_limit();
  // Compares the frame's address, since sanitizers may keep variables outside the stack.
  if (reinterpret_cast<uintptr_t>(__builtin_frame_address(0)) < limit) {
    PyErr_Format(PyExc_RecursionError, "the stack of this thread is used up%s", where);
    return -1;
  }
  if (t_levels < Py_GetRecursionLimit()) return ++t_levels, 0;
  PyErr_Format(PyExc_RecursionError, "maximum recursion depth exceeded%s", where);
  return -1;
}

void leave_nested() { --t_levels; }

PyTreeDef* pytree_flatten(PyObject* tree, std::vector<PyObject*>& leaves, PyObject* leaf_predicate) {
  OwnedNodes nodes;
  nodes.nodes.reserve(16);
  Flattening state{nodes.nodes, leaves, leaf_predicate};
  return flatten_into(state, tree) < 0 ? nullptr : make_treedef(nodes.nodes);
}

PyObject* pytree_flatten_up_to(const PyTreeDef* treedef, PyObject* tree) {
  Py_ssize_t next = treedef_num_leaves(treedef);
  Ref leaves = steal(PyList_New(next));
  if (!leaves || up_to(treedef, Py_SIZE(treedef) - 1, tree, leaves.get(), &next) < 0) return nullptr;
  return leaves.release();
}

PyObject* pytree_unflatten(const PyTreeDef* treedef, PyObject* const* leaves) {
  constexpr int64_t kInline = 64;
  PyObject* inline_stack[kInline];  // owned references to finished subtrees
  std::vector<PyObject*> heap_stack;
  PyObject** stack = inline_stack;
  if (Py_SIZE(treedef) > kInline) {
    heap_stack.resize(Py_SIZE(treedef));
    stack = heap_stack.data();
  }
  int64_t depth = 0;
  for (Py_ssize_t i = 0; i < Py_SIZE(treedef); ++i) {
    const Node& node = treedef->nodes[i];
    if (node.kind == NodeKind::kLeaf) {
      stack[depth++] = Py_NewRef(*leaves++);
      continue;
    }
    PyObject* made = make_container(node, stack + depth - node.arity);
    for (int64_t k = 0; k < node.arity; ++k) Py_DECREF(stack[--depth]);
    if (made == nullptr) {
      while (depth > 0) Py_DECREF(stack[--depth]);
      return nullptr;
    }
    stack[depth++] = made;
  }
  return stack[0];
}

PyObject* treedef_unflatten(PyObject* treedef_object, PyObject* leaves) {
  auto* treedef = reinterpret_cast<PyTreeDef*>(treedef_object);
  int64_t expected = treedef_num_leaves(treedef);
  Ref items = steal(in_python<PySequence_Tuple>(leaves));
  if (!items) return nullptr;
  Py_ssize_t count = PyTuple_GET_SIZE(items.get());
  if (count < expected)
    return PyErr_Format(PyExc_ValueError, "Too few leaves for PyTreeDef; expected %lld, got %zd",
                        static_cast<long long>(expected), count);
  if (count > expected)
    return PyErr_Format(PyExc_ValueError, "Too many leaves for PyTreeDef; expected %lld.",
                        static_cast<long long>(expected));
  return pytree_unflatten(treedef, &PyTuple_GET_ITEM(items.get(), 0));
}

int register_walks(PyObject* module) { return PyModule_AddFunctions(module, kFunctions); }

}  // namespace weft
