// The type PyTreeDef: printing, equality, pickling, composition.
#include <algorithm>
#include <string>

#include "module.h"
#include "pytree.h"

namespace weft {

PyTypeObject* PyTreeDefType = nullptr;

namespace {

PyTreeDef* as_treedef(PyObject* object) { return reinterpret_cast<PyTreeDef*>(object); }
PyObject* as_object(PyTreeDef* treedef) { return reinterpret_cast<PyObject*>(treedef); }

struct OwnedNodes {
  std::vector<Node> nodes;
  ~OwnedNodes() { release_nodes(nodes); }
};

Node copy_of(const Node& node) {
  Node copy = node;
  Py_XINCREF(copy.data);
  copy.blank = nullptr;
  return copy;
}

// Owned treedef of the subtree whose root is nodes[root].
PyTreeDef* subtree(const PyTreeDef* treedef, int64_t root) {
  OwnedNodes copy;
  int64_t first = root + 1 - treedef->nodes[root].num_nodes;
  for (int64_t i = first; i <= root; ++i) copy.nodes.push_back(copy_of(treedef->nodes[i]));
  return make_treedef(copy.nodes);
}

// ---- creation and destruction ----

void treedef_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  PyTreeDef* treedef = as_treedef(self);
  if (treedef->weakrefs != nullptr) PyObject_ClearWeakRefs(self);
  for (Py_ssize_t i = 0; i < Py_SIZE(self); ++i) {
    Py_CLEAR(treedef->nodes[i].data);
    Py_CLEAR(treedef->nodes[i].blank);
  }
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_Del(self);
  Py_DECREF(type);
}

int treedef_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  PyTreeDef* treedef = as_treedef(self);
  for (Py_ssize_t i = 0; i < Py_SIZE(self); ++i) {
    Py_VISIT(treedef->nodes[i].data);
    Py_VISIT(treedef->nodes[i].blank);
  }
  return 0;
}

// ---- printing ----

// Appends str(object) (or repr) as UTF-8; false with an error set.
bool append_text(std::string& text, PyObject* object, bool as_repr) {
  Ref string = steal(as_repr ? in_python<PyObject_Repr>(object) : in_python<PyObject_Str>(object));
  Ref bytes = string ? steal(PyUnicode_AsEncodedString(string.get(), "utf-8", "backslashreplace")) : Ref();
  if (!bytes) return false;
  text.append(PyBytes_AS_STRING(bytes.get()), PyBytes_GET_SIZE(bytes.get()));
  return true;
}

std::string joined(const std::string* parts, int64_t count) {
  std::string text;
  for (int64_t i = 0; i < count; ++i) {
    if (i > 0) text += ", ";
    text += parts[i];
  }
  return text;
}

bool append_type_name(std::string& text, PyObject* type) {
  Ref name = steal(in_python<PyObject_GetAttrString>(type, "__name__"));
  return name && append_text(text, name.get(), false);
}

// Text of one node from the texts of its children; false with an error set.
bool node_text(const Node& node, const std::string* children, std::string& text) {
  switch (node.kind) {
    case NodeKind::kLeaf: text = "*"; return true;
    case NodeKind::kNone: text = "None"; return true;
    case NodeKind::kTuple: text = "(" + joined(children, node.arity) + (node.arity == 1 ? ",)" : ")"); return true;
    case NodeKind::kList: text = "[" + joined(children, node.arity) + "]"; return true;
    case NodeKind::kDict:
      text = "{";
      for (int64_t i = 0; i < node.arity; ++i) {
        if (i > 0) text += ", ";
        if (!append_text(text, PyTuple_GET_ITEM(node.data, i), true)) return false;
        text += ": " + children[i];
      }
      text += "}";
      return true;
    case NodeKind::kNamedTuple:
      text = "CustomNode(namedtuple[";
      if (!append_type_name(text, node.data)) return false;
      break;
    default:
      text = "CustomNode(";
      if (!append_type_name(text, reinterpret_cast<PyObject*>(node.registration->type))) return false;
      text += "[";
      if (!append_text(text, node.data, false)) return false;
  }
  text += "], [" + joined(children, node.arity) + "])";
  return true;
}

PyObject* treedef_repr(PyObject* self) {
  RecursionGuard guard(" in repr of a PyTreeDef");  // auxiliary data may hold treedefs
  if (guard.failed()) return nullptr;
  std::vector<std::string> stack;
  PyTreeDef* treedef = as_treedef(self);
  for (Py_ssize_t i = 0; i < Py_SIZE(self); ++i) {
    const Node& node = treedef->nodes[i];
    std::string text;
    if (!node_text(node, stack.data() + stack.size() - node.arity, text)) return nullptr;
    stack.resize(stack.size() - node.arity);
    stack.push_back(std::move(text));
  }
  std::string text = "PyTreeDef(" + stack[0] + ")";
  return PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace");
}

// ---- comparison ----

// Auxiliary data need not be hashable, so the hash leaves it out.
Py_hash_t treedef_hash(PyObject* self) {
  PyTreeDef* treedef = as_treedef(self);
  if (treedef->hash != -1) return treedef->hash;
  uint64_t hash = 0x7765;
  auto mix = [&hash](uint64_t value) {
    hash = (hash ^ value) * 0x9E3779B97F4A7C15ull;
    hash ^= hash >> 31;
  };
  for (Py_ssize_t i = 0; i < Py_SIZE(self); ++i) {
    const Node& node = treedef->nodes[i];
    mix(static_cast<uint64_t>(node.kind) << 32 ^ static_cast<uint64_t>(node.arity));
    mix(reinterpret_cast<uintptr_t>(node.registration));
    if (node.kind == NodeKind::kNamedTuple) mix(reinterpret_cast<uintptr_t>(node.data));
    if (node.kind != NodeKind::kDict) continue;
    Py_hash_t keys = in_python<PyObject_Hash>(node.data);
    if (keys == -1) return -1;
    mix(static_cast<uint64_t>(keys));
  }
  treedef->hash = static_cast<Py_hash_t>(hash) == -1 ? -2 : static_cast<Py_hash_t>(hash);
  return treedef->hash;
}

// 1 if equal, 0 if not, -1 with an error set. An exception in __eq__ of auxiliary data becomes the cause of a
// ValueError.
int same_data(PyObject* one, PyObject* other) {
  if (one == other) return 1;
  if (one == nullptr || other == nullptr) return 0;
  int same = in_python<PyObject_RichCompareBool>(one, other, Py_EQ);
  if (same < 0 && PyErr_ExceptionMatches(PyExc_Exception))
    raise_from_current(PyExc_ValueError,
                       "Exception raised while checking equality of metadata fields of pytree. Make sure that metadata "
                       "fields are hashable and have simple equality semantics. (Note: arrays cannot be passed as "
                       "metadata fields!)");
  return same;
}

int same_treedefs(PyTreeDef* one, PyTreeDef* other) {
  if (one == other) return 1;
  if (Py_SIZE(one) != Py_SIZE(other)) return 0;
  for (Py_ssize_t i = 0; i < Py_SIZE(one); ++i) {
    const Node &left = one->nodes[i], &right = other->nodes[i];
    if (left.kind != right.kind || left.arity != right.arity || left.registration != right.registration) return 0;
  }
  for (Py_ssize_t i = 0; i < Py_SIZE(one); ++i) {
    int same = same_data(one->nodes[i].data, other->nodes[i].data);
    if (same <= 0) return same;
  }
  return 1;
}

PyObject* treedef_compare(PyObject* self, PyObject* other, int operation) {
  if ((operation != Py_EQ && operation != Py_NE) || !is_treedef(other)) Py_RETURN_NOTIMPLEMENTED;
  int same = same_treedefs(as_treedef(self), as_treedef(other));
  return same < 0 ? nullptr : PyBool_FromLong((same != 0) == (operation == Py_EQ));
}

// ---- structure ----

PyObject* treedef_children(PyObject* self, PyObject*) {
  PyTreeDef* treedef = as_treedef(self);
  int64_t arity = treedef->root().arity;
  Ref children = steal(PyList_New(arity));
  int64_t child = Py_SIZE(self) - 2;
  for (int64_t i = arity - 1; children && i >= 0; --i) {
    PyTreeDef* made = subtree(treedef, child);
    if (made == nullptr) return nullptr;
    PyList_SET_ITEM(children.get(), i, as_object(made));
    child -= treedef->nodes[child].num_nodes;
  }
  return children.release();
}

PyObject* node_type(const Node& node) {  // borrowed
  switch (node.kind) {
    case NodeKind::kNone: return reinterpret_cast<PyObject*>(Py_TYPE(Py_None));
    case NodeKind::kTuple: return reinterpret_cast<PyObject*>(&PyTuple_Type);
    case NodeKind::kList: return reinterpret_cast<PyObject*>(&PyList_Type);
    case NodeKind::kDict: return reinterpret_cast<PyObject*>(&PyDict_Type);
    case NodeKind::kNamedTuple: return node.data;
    default: return reinterpret_cast<PyObject*>(node.registration->type);
  }
}

PyObject* treedef_node_data(PyObject* self, PyObject*) {
  const Node& root = as_treedef(self)->root();
  if (root.kind == NodeKind::kLeaf) Py_RETURN_NONE;
  Ref data = root.kind == NodeKind::kNamedTuple ? borrow(Py_None) : steal(visible_data(root));
  return data ? PyTuple_Pack(2, node_type(root), data.get()) : nullptr;
}

PyObject* treedef_flatten_up_to(PyObject* self, PyObject* tree) { return pytree_flatten_up_to(as_treedef(self), tree); }

// This treedef with every leaf replaced by the other treedef.
PyObject* treedef_compose(PyObject* self, PyObject* inner_object) {
  if (!is_treedef(inner_object))
    return PyErr_Format(PyExc_TypeError, "[PyTreeDef.compose] expected a PyTreeDef, got %R", inner_object);
  PyTreeDef *outer = as_treedef(self), *inner = as_treedef(inner_object);
  OwnedNodes nodes;
  for (Py_ssize_t i = 0; i < Py_SIZE(outer); ++i) {
    const Node& node = outer->nodes[i];
    if (node.kind == NodeKind::kLeaf) {
      for (Py_ssize_t k = 0; k < Py_SIZE(inner); ++k) nodes.nodes.push_back(copy_of(inner->nodes[k]));
      continue;
    }
    nodes.nodes.push_back(copy_of(node));
    Node& copy = nodes.nodes.back();
    copy.num_nodes += node.num_leaves * (inner->root().num_nodes - 1);
    copy.num_leaves *= inner->root().num_leaves;
  }
  return as_object(make_treedef(nodes.nodes));
}

// walk(f_node, f_leaf, leaves): f_leaf(leaf) at leaves, f_node(tuple of results, node data) at nodes, bottom up.
PyObject* treedef_walk(PyObject* self, PyObject* args) {
  PyObject *node_function, *leaf_function, *leaves;
  if (!PyArg_ParseTuple(args, "OOO:walk", &node_function, &leaf_function, &leaves)) return nullptr;
  Ref items = steal(in_python<PySequence_Tuple>(leaves));
  if (!items) return nullptr;
  PyTreeDef* treedef = as_treedef(self);
  int64_t expected = treedef_num_leaves(treedef);
  if (PyTuple_GET_SIZE(items.get()) != expected) {
    bool few = PyTuple_GET_SIZE(items.get()) < expected;
    PyErr_SetString(PyExc_ValueError, few ? "Too few leaves for PyTreeDef" : "Too many leaves for PyTreeDef");
    return nullptr;
  }
  std::vector<Ref> stack;
  Py_ssize_t next = 0;
  for (Py_ssize_t i = 0; i < Py_SIZE(self); ++i) {
    const Node& node = treedef->nodes[i];
    Ref made;
    if (node.kind == NodeKind::kLeaf) {
      PyObject* leaf = PyTuple_GET_ITEM(items.get(), next++);
      made = leaf_function == Py_None ? borrow(leaf) : steal(in_python<PyObject_CallOneArg>(leaf_function, leaf));
    } else {
      Ref children = steal(PyTuple_New(node.arity)), data = steal(visible_data(node));
      if (!children || !data) return nullptr;
      for (int64_t k = node.arity - 1; k >= 0; --k) {
        PyTuple_SET_ITEM(children.get(), k, stack.back().release());
        stack.pop_back();
      }
      made = steal(in_python<PyObject_CallFunctionObjArgs>(node_function, children.get(), data.get(), nullptr));
    }
    if (!made) return nullptr;
    stack.push_back(std::move(made));
  }
  return stack[0].release();
}

// Builds the subtree at *node, and moves *node before it, from nested iterables of the same arities.
PyObject* from_iterables(const PyTreeDef* treedef, int64_t* position, PyObject* tree) {
  const Node& node = treedef->nodes[*position];
  --*position;
  if (node.kind == NodeKind::kLeaf) return Py_NewRef(tree);
  RecursionGuard guard(" in from_iterable_tree");
  if (guard.failed()) return nullptr;
  Ref items = steal(in_python<PySequence_Tuple>(tree));
  if (!items) return nullptr;
  if (PyTuple_GET_SIZE(items.get()) != node.arity) {
    PyErr_SetString(PyExc_ValueError, "Arity mismatch between trees");
    return nullptr;
  }
  std::vector<Ref> owned(node.arity);
  std::vector<PyObject*> children(node.arity);
  for (int64_t i = node.arity - 1; i >= 0; --i) {
    owned[i] = steal(from_iterables(treedef, position, PyTuple_GET_ITEM(items.get(), i)));
    children[i] = owned[i].get();
    if (children[i] == nullptr) return nullptr;
  }
  return make_container(node, children.data());
}

PyObject* treedef_from_iterable_tree(PyObject* self, PyObject* tree) {
  int64_t position = Py_SIZE(self) - 1;
  return from_iterables(as_treedef(self), &position, tree);
}

// ---- building from parts ----

// Fills kind, data and registration of a node of this type; false with an error set. data is as users see it.
bool describe_node(Node& node, PyObject* type_object, PyObject* data) {
  if (!PyType_Check(type_object)) {
    PyErr_Format(PyExc_TypeError, "[PyTreeDef] a node's type must be a class, got %R", type_object);
    return false;
  }
  auto* type = reinterpret_cast<PyTypeObject*>(type_object);
  if (type == Py_TYPE(Py_None) || type == &PyTuple_Type || type == &PyList_Type) {
    node.kind = type == &PyTuple_Type ? NodeKind::kTuple : type == &PyList_Type ? NodeKind::kList : NodeKind::kNone;
    return true;
  }
  if (type == &PyDict_Type) {
    node.kind = NodeKind::kDict;
    return (node.data = in_python<PySequence_Tuple>(data)) != nullptr;
  }
  if ((node.registration = find_registration(type)) != nullptr) {
    node.kind = node.registration->kind;
    node.data = Py_NewRef(data);
    return true;
  }
  if (is_named_tuple_type(type)) {
    node.kind = NodeKind::kNamedTuple;
    node.data = Py_NewRef(type_object);
    return true;
  }
  PyErr_Format(PyExc_ValueError, "Could not find type: %R.", type_object);
  return false;
}

// Checks that the number of children fits the node's kind and data, since a caller may pass anything.
bool check_arity(const Node& node) {
  if (node.kind == NodeKind::kDict && PyTuple_GET_SIZE(node.data) != node.arity) {
    PyErr_SetString(PyExc_ValueError, "Number of keys and entries does not match.");
    return false;
  }
  if (node.arity == 0 || (node.kind != NodeKind::kNone && node.kind != NodeKind::kLeaf)) return true;
  PyErr_SetString(PyExc_ValueError, "[PyTreeDef] None and leaves have no children");
  return false;
}

// Appends a node whose children are the last `arity` subtrees; takes over node.data. False with an error set.
bool append_node(std::vector<Node>& nodes, Node node) {
  node.num_leaves = node.kind == NodeKind::kLeaf;
  node.num_nodes = 1;
  int64_t child = static_cast<int64_t>(nodes.size()) - 1;
  bool fine = check_arity(node);
  for (int64_t i = 0; fine && i < node.arity; ++i) {
    if (child < 0) {
      PyErr_SetString(PyExc_ValueError, "[PyTreeDef] a node has more children than there are subtrees");
      fine = false;
      break;
    }
    node.num_leaves += nodes[child].num_leaves;
    node.num_nodes += nodes[child].num_nodes;
    child -= nodes[child].num_nodes;
  }
  if (!fine) {
    Py_XDECREF(node.data);
    return false;
  }
  nodes.push_back(node);
  return true;
}

PyTreeDef* from_node_data(PyObject* node_data, PyObject* children) {
  Ref items = steal(in_python<PySequence_Tuple>(children));
  if (!items) return nullptr;
  OwnedNodes nodes;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items.get()); ++i) {
    PyObject* child = PyTuple_GET_ITEM(items.get(), i);
    if (!is_treedef(child)) {
      PyErr_Format(PyExc_TypeError, "[PyTreeDef] children must be PyTreeDefs, got %R", child);
      return nullptr;
    }
    for (Py_ssize_t k = 0; k < Py_SIZE(child); ++k) nodes.nodes.push_back(copy_of(as_treedef(child)->nodes[k]));
  }
  Node root{NodeKind::kLeaf, PyTuple_GET_SIZE(items.get())};
  if (node_data != Py_None) {
    if (!PyTuple_Check(node_data) || PyTuple_GET_SIZE(node_data) != 2) {
      PyErr_Format(PyExc_TypeError, "[PyTreeDef] node_data must be None or (type, data), got %R", node_data);
      return nullptr;
    }
    if (!describe_node(root, PyTuple_GET_ITEM(node_data, 0), PyTuple_GET_ITEM(node_data, 1))) return nullptr;
  }
  return append_node(nodes.nodes, root) ? make_treedef(nodes.nodes) : nullptr;
}

// from_node_data_and_children([registry,] node_data, children). There is one registry; an argument for it is ignored.
PyObject* treedef_from_parts(PyObject*, PyObject* args) {
  Py_ssize_t count = PyTuple_GET_SIZE(args);
  if (count != 2 && count != 3)
    return PyErr_Format(PyExc_TypeError, "[PyTreeDef] from_node_data_and_children takes 2 or 3 arguments, got %zd",
                        count);
  return as_object(from_node_data(PyTuple_GET_ITEM(args, count - 2), PyTuple_GET_ITEM(args, count - 1)));
}

PyObject* py_treedef_tuple(PyObject*, PyObject* treedefs) {
  Ref node_data = steal(Py_BuildValue("(OO)", &PyTuple_Type, Py_None));
  return node_data ? as_object(from_node_data(node_data.get(), treedefs)) : nullptr;
}

// ---- pickling: a list of (arity, type or None for a leaf, data) in post-order ----

PyObject* treedef_reduce(PyObject* self, PyObject*) {
  PyTreeDef* treedef = as_treedef(self);
  Ref state = steal(PyList_New(Py_SIZE(self)));
  if (!state) return nullptr;
  for (Py_ssize_t i = 0; i < Py_SIZE(self); ++i) {
    const Node& node = treedef->nodes[i];
    bool named = node.kind == NodeKind::kNamedTuple;
    PyObject* type = node.kind == NodeKind::kLeaf ? Py_None : node_type(node);
    PyObject* entry = Py_BuildValue("(LOO)", static_cast<long long>(node.arity), type,
                                    named || node.data == nullptr ? Py_None : node.data);
    if (entry == nullptr) return nullptr;
    PyList_SET_ITEM(state.get(), i, entry);
  }
  Ref maker = steal(in_python<PyObject_GetAttrString>(reinterpret_cast<PyObject*>(PyTreeDefType), "_from_state"));
  return maker ? Py_BuildValue("O(O)", maker.get(), state.get()) : nullptr;
}

PyObject* treedef_from_state(PyObject*, PyObject* state) {
  Ref entries = steal(in_python<PySequence_Tuple>(state));
  if (!entries) return nullptr;
  OwnedNodes nodes;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(entries.get()); ++i) {
    Node node{NodeKind::kLeaf};
    long long arity;
    PyObject *type, *data;
    if (!PyTuple_Check(PyTuple_GET_ITEM(entries.get(), i)) ||
        !PyArg_ParseTuple(PyTuple_GET_ITEM(entries.get(), i), "LOO", &arity, &type, &data)) {
      if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "[PyTreeDef] not the state of a treedef");
      return nullptr;
    }
    node.arity = arity < 0 ? 0 : arity;
    if (type != Py_None && !describe_node(node, type, data)) return nullptr;
    if (!append_node(nodes.nodes, node)) return nullptr;
  }
  if (nodes.nodes.empty() || nodes.nodes.back().num_nodes != static_cast<int64_t>(nodes.nodes.size())) {
    PyErr_SetString(PyExc_ValueError, "[PyTreeDef] the nodes do not form one tree");
    return nullptr;
  }
  return as_object(make_treedef(nodes.nodes));
}

// ---- the type ----

PyObject* get_num_leaves(PyObject* self, void*) { return PyLong_FromLongLong(treedef_num_leaves(as_treedef(self))); }
PyObject* get_num_nodes(PyObject* self, void*) { return PyLong_FromSsize_t(Py_SIZE(self)); }

PyGetSetDef kGetSet[] = {
    {"num_leaves", get_num_leaves, nullptr, "Number of leaves.", nullptr},
    {"num_nodes", get_num_nodes, nullptr, "Number of nodes, leaves included.", nullptr},
    {},
};

PyMemberDef kMembers[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(PyTreeDef, weakrefs), READONLY, nullptr},
    {},
};

PyMethodDef kMethods[] = {
    {"unflatten", entry_point<treedef_unflatten>, METH_O, "The tree of this structure with the given leaves."},
    {"flatten_up_to", entry_point<treedef_flatten_up_to>, METH_O, "The subtrees of a tree at this treedef's leaves."},
    {"compose", entry_point<treedef_compose>, METH_O, "This structure with another one at every leaf."},
    {"children", entry_point<treedef_children>, METH_NOARGS, "Treedefs of the root's children."},
    {"node_data", entry_point<treedef_node_data>, METH_NOARGS, "(type, auxiliary data) of the root, or None for a leaf."},
    {"walk", entry_point<treedef_walk>, METH_VARARGS, "walk(f_node, f_leaf, leaves): fold the tree bottom up."},
    {"from_iterable_tree", entry_point<treedef_from_iterable_tree>, METH_O, "A tree of this structure from nested iterables."},
    {"from_node_data_and_children", entry_point<treedef_from_parts>, METH_VARARGS | METH_STATIC,
     "The treedef of a root given by node_data() over the children's treedefs."},
    {"make_from_node_data_and_children", entry_point<treedef_from_parts>, METH_VARARGS | METH_STATIC,
     "The treedef of a root given by node_data() over the children's treedefs."},
    {"_from_state", entry_point<treedef_from_state>, METH_O | METH_STATIC, nullptr},
    {"__reduce__", entry_point<treedef_reduce>, METH_NOARGS, nullptr},
    {},
};

PyType_Slot kSlots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(treedef_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(treedef_traverse)},
    {Py_tp_repr, reinterpret_cast<void*>(entry_point<treedef_repr>)},
    {Py_tp_hash, reinterpret_cast<void*>(treedef_hash)},
    {Py_tp_richcompare, reinterpret_cast<void*>(entry_point<treedef_compare>)},
    {Py_tp_getset, kGetSet},
    {Py_tp_members, kMembers},
    {Py_tp_methods, kMethods},
    {Py_tp_doc, const_cast<char*>("The structure of a pytree: its containers without the leaves.")},
    {0, nullptr},
};

PyType_Spec kSpec = {"weft.runtime.PyTreeDef", offsetof(PyTreeDef, nodes), sizeof(Node),
                     Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, kSlots};

PyMethodDef kFunctions[] = {
    {"treedef_tuple", entry_point<py_treedef_tuple>, METH_O, "treedef_tuple(treedefs) -> treedef of a tuple of such trees."},
    {},
};

}  // namespace

void release_nodes(std::vector<Node>& nodes) {
  std::vector<Node> taken;
  taken.swap(nodes);
  for (Node& node : taken) Py_XDECREF(node.data);
}

PyTreeDef* make_treedef(std::vector<Node>& nodes) {
  PyTreeDef* treedef = PyObject_GC_NewVar(PyTreeDef, PyTreeDefType, static_cast<Py_ssize_t>(nodes.size()));
  if (treedef == nullptr) {
    release_nodes(nodes);
    return nullptr;
  }
  treedef->weakrefs = nullptr;
  treedef->hash = -1;
  std::copy(nodes.begin(), nodes.end(), treedef->nodes);
  nodes.clear();
  PyObject_GC_Track(as_object(treedef));
  return treedef;
}

int register_treedef(PyObject* module) {
  PyTreeDefType = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&kSpec));
  if (PyTreeDefType == nullptr || PyModule_AddFunctions(module, kFunctions) < 0) return -1;
  return PyModule_AddObjectRef(module, "PyTreeDef", reinterpret_cast<PyObject*>(PyTreeDefType));
}

int register_pytree(PyObject* module) {
  for (auto registration : {register_treedef, register_registry, register_walks})
    if (registration(module) < 0) return -1;
  return 0;
}

}  // namespace weft
