// What Python sees of messages between processes: operations that are tested or waited for, and functions that start
// them.
#include "module.h"

#include <optional>

#include "mpi.h"
#include "mpi_library.h"

namespace weft {
namespace {

using mpi::Failure;

PyObject* error_type = nullptr;  // owned: weft.errors.DistributedError

// Sets the Python error for a failure that ends all exchange.
void set_failure(const Failure& failure) {
  PyErr_SetString(error_type != nullptr ? error_type : PyExc_RuntimeError, failure.what());
}

// ---- operations

struct PyOperation {
  PyObject_HEAD
  mpi::Operation* operation;  // owned; nullptr when it is done
  Py_buffer buffers[2];       // what it reads and writes; obj is nullptr where there is none
  bool busy;                  // a thread waits for it, without the GIL
};

PyTypeObject* OperationType = nullptr;

struct Buffers {
  Py_buffer list[2] = {};

  Buffers() = default;
  Buffers(const Buffers&) = delete;
  ~Buffers() {
    for (Py_buffer& buffer : list)
      if (buffer.obj != nullptr) PyBuffer_Release(&buffer);
  }
  bool take(int i, PyObject* object, bool written) {
    return PyObject_GetBuffer(object, &list[i], written ? PyBUF_WRITABLE : PyBUF_SIMPLE) == 0;
  }
};

// Takes over the buffers.
template <class Start>
PyObject* started(Buffers* buffers, Start start) {
  PyOperation* self = PyObject_New(PyOperation, OperationType);
  if (self == nullptr) return nullptr;
  self->operation = nullptr;
  self->busy = false;
  for (int i = 0; i < 2; ++i) {
    self->buffers[i] = buffers->list[i];
    buffers->list[i] = Py_buffer{};
  }
  Ref result = steal(reinterpret_cast<PyObject*>(self));
  try {
    self->operation = start().release();
  } catch (const Failure& failure) {
    set_failure(failure);
    return nullptr;
  }
  return result.release();
}

void finished(PyOperation* self) {
  delete self->operation;
  self->operation = nullptr;
  for (Py_buffer& buffer : self->buffers)
    if (buffer.obj != nullptr) PyBuffer_Release(&buffer);
}

// Its memory is given back only where MPI no longer touches it.
void operation_dealloc(PyObject* object) {
  PyOperation* self = reinterpret_cast<PyOperation*>(object);
  if (self->operation == nullptr || self->operation->cancel()) finished(self);
  PyTypeObject* type = Py_TYPE(object);
  PyObject_Free(object);
  Py_DECREF(type);
}

// The operation, unless another thread waits for it.
PyOperation* own_operation(PyObject* object) {
  PyOperation* self = reinterpret_cast<PyOperation*>(object);
  if (!self->busy) return self;
  PyErr_SetString(PyExc_RuntimeError, "[mpi] another thread waits for this exchange");
  return nullptr;
}

PyObject* operation_test(PyObject* object, PyObject*) {
  PyOperation* self = own_operation(object);
  if (self == nullptr) return nullptr;
  if (self->operation == nullptr) Py_RETURN_TRUE;
  try {
    if (!self->operation->poll()) Py_RETURN_FALSE;
  } catch (const Failure& failure) {
    mpi::break_off(failure.what());
    set_failure(failure);
    return nullptr;
  }
  finished(self);
  Py_RETURN_TRUE;
}

PyObject* operation_wait(PyObject* object, PyObject* args) {
  PyOperation* self = own_operation(object);
  const char* what;
  double limit_s;
  if (self == nullptr || !PyArg_ParseTuple(args, "sd", &what, &limit_s)) return nullptr;
  mpi::Waited waited;
  for (bool done = self->operation == nullptr; !done;) {
    std::optional<Failure> failure;
    self->busy = true;
    PyThreadState* state = PyEval_SaveThread();
    try {
      done = mpi::wait_part(*self->operation, what, 0.05, limit_s, &waited);
    } catch (const Failure& error) {
      mpi::break_off(error.what());
      failure = error;
    }
    in_python<PyEval_RestoreThread>(state);
    self->busy = false;
    if (failure) {
      set_failure(*failure);
      return nullptr;
    }
    if (!done && in_python<PyErr_CheckSignals>() < 0) {
      mpi::break_off(std::string("a wait was interrupted in ") + what);
      return nullptr;
    }
  }
  if (self->operation != nullptr) finished(self);
  Py_RETURN_NONE;
}

PyObject* rank_tuple(const std::vector<int>& ranks) {
  Ref tuple = steal(PyTuple_New(Py_ssize_t(ranks.size())));
  for (size_t i = 0; tuple && i < ranks.size(); ++i) {
    PyObject* rank = PyLong_FromLong(ranks[i]);
    if (rank == nullptr) return nullptr;
    PyTuple_SET_ITEM(tuple.get(), Py_ssize_t(i), rank);
  }
  return tuple.release();
}

PyObject* operation_awaited(PyObject* object, PyObject*) {
  PyOperation* self = own_operation(object);
  if (self == nullptr) return nullptr;
  return rank_tuple(self->operation == nullptr ? std::vector<int>() : self->operation->awaited());
}

PyMethodDef kOperationMethods[] = {
    {"test", entry_point<operation_test>, METH_NOARGS, "test() -> whether it is done; lets MPI work."},
    {"wait", entry_point<operation_wait>, METH_VARARGS,
     "wait(what, limit_s) -> when it is done; limit_s 0: the limit of mpi_set_limits. The GIL is free meanwhile."},
    {"awaited", entry_point<operation_awaited>, METH_NOARGS, "awaited() -> ranks whose part has not come."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot kOperationSlots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(operation_dealloc)},
    {Py_tp_methods, kOperationMethods},
    {Py_tp_doc, const_cast<char*>("An exchange between processes that is on its way.")},
    {0, nullptr},
};

PyType_Spec kOperationSpec = {"weft.runtime.MpiOperation", sizeof(PyOperation), 0,
                              Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, kOperationSlots};

// ---- the library

PyObject* py_begin(PyObject*, PyObject* args) {
  const char* path;
  int level;
  if (!PyArg_ParseTuple(args, "si", &path, &level)) return nullptr;
  std::string why = mpi::begin(path, level);
  if (why.empty()) Py_RETURN_NONE;
  PyErr_Format(PyExc_ImportError, "[mpi] %s", why.c_str());
  return nullptr;
}

PyObject* py_begun(PyObject*, PyObject*) {
  int code, provided;
  if (!mpi::begun(&code, &provided)) Py_RETURN_NONE;
  return Py_BuildValue("(ii)", code, provided);
}

PyObject* py_connect(PyObject*, PyObject* args) {
  const char* path;
  unsigned long long communicator, byte;
  int rank, size, most_tags;
  Py_ssize_t piece = Py_ssize_t(1) << 30;
  if (!PyArg_ParseTuple(args, "sKKiii|n", &path, &communicator, &byte, &rank, &size, &most_tags, &piece))
    return nullptr;
  if (rank < 0 || rank >= size || most_tags < 32767 || piece < 1 || piece > (Py_ssize_t(1) << 30)) {
    PyErr_SetString(PyExc_ValueError, "mpi_connect: rank, size, most_tags or piece out of range");
    return nullptr;
  }
  std::string why =
      mpi::connect({path, uintptr_t(communicator), uintptr_t(byte), rank, size, most_tags, size_t(piece)});
  if (!why.empty()) {
    PyErr_Format(PyExc_ImportError, "[mpi] %s", why.c_str());
    return nullptr;
  }
  Py_RETURN_NONE;
}

PyObject* py_disconnect(PyObject*, PyObject*) {
  mpi::disconnect();
  Py_RETURN_NONE;
}

PyObject* py_break_off(PyObject*, PyObject* reason) {
  const char* text = PyUnicode_AsUTF8(reason);
  if (text == nullptr) return nullptr;
  mpi::break_off(text);
  Py_RETURN_NONE;
}

PyObject* py_lost(PyObject*, PyObject*) { return PyBool_FromLong(mpi::lost()); }

PyObject* py_set_limits(PyObject*, PyObject* args) {
  double warn_s, limit_s;
  if (!PyArg_ParseTuple(args, "dd", &warn_s, &limit_s)) return nullptr;
  mpi::set_limits(warn_s, limit_s);
  Py_RETURN_NONE;
}

PyObject* py_set_error_type(PyObject*, PyObject* type) {
  Py_XDECREF(error_type);
  error_type = borrow(type).release();
  Py_RETURN_NONE;
}

// ---- messages and agreement

bool check_peer(int peer, int tag) {
  if (mpi::connected() && (peer < 0 || peer >= mpi::size()))
    PyErr_Format(PyExc_ValueError, "[mpi] there is no rank %d: ranks are 0 to %d", peer, mpi::size() - 1);
  else if (tag < 0 || tag >= 1 << 20)
    PyErr_Format(PyExc_ValueError, "[mpi] a tag is at least 0 and below 2**20, got %d", tag);
  else
    return true;
  return false;
}

class Single : public mpi::Operation {
 public:
  bool poll() override { return messages.done(); }
  std::vector<int> awaited() const override {
    std::vector<int> ranks;
    messages.awaited(&ranks);
    return ranks;
  }
  bool cancel() override { return messages.cancel(); }

  mpi::Messages messages;
};

PyObject* start_single(PyObject* args, bool sends) {
  PyObject* object;
  int peer, tag;
  if (!PyArg_ParseTuple(args, "Oii", &object, &peer, &tag) || !check_peer(peer, tag)) return nullptr;
  Buffers buffers;
  if (!buffers.take(0, object, !sends)) return nullptr;
  Py_buffer& buffer = buffers.list[0];
  void* data = buffer.buf;
  size_t nbytes = size_t(buffer.len);
  return started(&buffers, [&] {
    auto* single = new Single;
    mpi::Pending pending(single);
    if (sends) single->messages.send(data, nbytes, peer, mpi::kMessageTags + tag);
    else single->messages.receive(data, nbytes, peer, mpi::kMessageTags + tag);
    return pending;
  });
}

PyObject* py_isend(PyObject*, PyObject* args) { return start_single(args, true); }
PyObject* py_irecv(PyObject*, PyObject* args) { return start_single(args, false); }

PyObject* py_agree(PyObject*, PyObject* args) {
  unsigned long long number, fingerprint;
  const char* words;
  if (!PyArg_ParseTuple(args, "KKs", &number, &fingerprint, &words)) return nullptr;
  Buffers none;
  return started(&none, [&] { return mpi::start_agree(number, fingerprint, words); });
}

PyObject* py_leave(PyObject*, PyObject* args) {
  const char* words;
  if (!PyArg_ParseTuple(args, "s", &words)) return nullptr;
  Buffers none;
  return started(&none, [&] { return mpi::start_leaving(words); });
}

// ---- collectives: kind, buffers, group and tag, then what the kind needs

struct Common {
  Buffers buffers;
  mpi::Group group;
  int tag = 0;
  const void* in() { return buffers.list[0].buf; }
  void* out() { return buffers.list[1].buf; }
  size_t in_bytes() { return size_t(buffers.list[0].len); }
  size_t out_bytes() { return size_t(buffers.list[1].len); }
};

bool read_ranks(PyObject* sequence, std::vector<int>* ranks) {
  Ref fast = steal(in_python<PySequence_Fast>(sequence, "ranks are a sequence of ints"));
  if (!fast) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(fast.get()); ++i) {
    long rank = PyLong_AsLong(PySequence_Fast_GET_ITEM(fast.get(), i));
    if (rank == -1 && PyErr_Occurred()) return false;
    if (!check_peer(int(rank), 0)) return false;
    ranks->push_back(int(rank));
  }
  return true;
}

bool read_common(Common* common, PyObject* in, PyObject* out, PyObject* group, int tag) {
  if (!check_peer(0, tag) || !read_ranks(group, &common->group.ranks)) return false;
  std::vector<int>& ranks = common->group.ranks;
  size_t me = 0;
  while (me < ranks.size() && ranks[me] != mpi::rank()) ++me;
  if (me == ranks.size()) {
    PyErr_Format(PyExc_ValueError, "[mpi] rank %d is not in the group %R", mpi::rank(), group);
    return false;
  }
  for (size_t i = 0; i < ranks.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (ranks[i] == ranks[j]) {
        PyErr_Format(PyExc_ValueError, "[mpi] rank %d is in the group twice: %R", ranks[i], group);
        return false;
      }
  common->group.me = int(me);
  common->tag = tag;
  return common->buffers.take(0, in, in == out) && common->buffers.take(1, out, true);
}

bool require_bytes(Common* common, size_t in_parts, size_t out_parts) {  // in * out_parts == out * in_parts
  if (common->in_bytes() * out_parts == common->out_bytes() * in_parts) return true;
  PyErr_Format(PyExc_ValueError, "[mpi] buffers of %zu and %zu bytes do not fit a group of %zu ranks",
               common->in_bytes(), common->out_bytes(), common->group.ranks.size());
  return false;
}

// Buffers that MPI reads and writes at once lie apart.
bool require_apart(Common* common) {
  const char *in = static_cast<const char*>(common->in()), *out = static_cast<const char*>(common->out());
  if (in + common->in_bytes() <= out || out + common->out_bytes() <= in) return true;
  PyErr_SetString(PyExc_ValueError, "[mpi] what is sent and what is received overlap in memory");
  return false;
}

bool read_reduction(const char* dtype, const char* combine, mpi::Type* type, mpi::Combine* how) {
  std::string name = combine;
  bool known = mpi::type_of(dtype, type) && (name == "sum" || name == "max" || name == "min");
  *how = name == "sum" ? mpi::Combine::sum : name == "max" ? mpi::Combine::max : mpi::Combine::min;
  if (known && mpi::reducible(*type, *how)) return true;
  PyErr_Format(PyExc_NotImplementedError, "[mpi] %s of %s is not computed between processes", combine, dtype);
  return false;
}

// mpi_all_reduce and mpi_reduce_scatter (dtype, combine, in, out, ranks, tag)
PyObject* start_reduction(PyObject* args, bool scatters) {
  const char *dtype, *combine;
  PyObject *in, *out, *group;
  int tag;
  mpi::Type type;
  mpi::Combine how;
  Common common;
  if (!PyArg_ParseTuple(args, "ssOOOi", &dtype, &combine, &in, &out, &group, &tag) ||
      !read_reduction(dtype, combine, &type, &how) || !read_common(&common, in, out, group, tag) ||
      !require_bytes(&common, scatters ? common.group.ranks.size() : 1, 1))
    return nullptr;
  bool in_place = !scatters && common.in() == common.out();
  if (!in_place && !require_apart(&common)) return nullptr;
  if (common.out_bytes() % mpi::size_of(type) != 0) {
    PyErr_Format(PyExc_ValueError, "[mpi] %zu bytes are no whole number of %s", common.out_bytes(), dtype);
    return nullptr;
  }
  const void* from = common.in();
  void* to = common.out();
  size_t count = common.out_bytes() / mpi::size_of(type);
  return started(&common.buffers, [&] {
    return scatters ? mpi::start_reduce_scatter(common.group, type, how, from, to, count, tag)
                    : mpi::start_all_reduce(common.group, type, how, from, to, count, tag);
  });
}

PyObject* py_all_reduce(PyObject*, PyObject* args) { return start_reduction(args, false); }
PyObject* py_reduce_scatter(PyObject*, PyObject* args) { return start_reduction(args, true); }

// mpi_all_gather and mpi_all_to_all (in, out, ranks, tag)
PyObject* start_move(PyObject* args, bool gathers) {
  PyObject *in, *out, *group;
  int tag;
  Common common;
  if (!PyArg_ParseTuple(args, "OOOi", &in, &out, &group, &tag) || !read_common(&common, in, out, group, tag) ||
      !require_bytes(&common, 1, gathers ? common.group.ranks.size() : 1) || !require_apart(&common))
    return nullptr;
  const void* from = common.in();
  void* to = common.out();
  size_t nbytes = common.out_bytes() / common.group.ranks.size();
  return started(&common.buffers, [&] {
    return gathers ? mpi::start_all_gather(common.group, from, to, nbytes, tag)
                   : mpi::start_all_to_all(common.group, from, to, nbytes, tag);
  });
}

PyObject* py_all_gather(PyObject*, PyObject* args) { return start_move(args, true); }
PyObject* py_all_to_all(PyObject*, PyObject* args) { return start_move(args, false); }

PyObject* py_permute(PyObject*, PyObject* args) {
  PyObject *in, *out, *destinations;
  int source, tag;
  std::vector<int> to_ranks;
  Common common;
  if (!PyArg_ParseTuple(args, "OOiOi", &in, &out, &source, &destinations, &tag) ||
      !check_peer(source < 0 ? 0 : source, tag) || !read_ranks(destinations, &to_ranks) ||
      !common.buffers.take(0, in, false) || !common.buffers.take(1, out, true) || !require_bytes(&common, 1, 1) ||
      !require_apart(&common))
    return nullptr;
  const void* from = common.in();
  void* to = common.out();
  size_t nbytes = common.out_bytes();
  return started(&common.buffers,
                 [&] { return mpi::start_permute(from, to, nbytes, source, to_ranks, tag); });
}

PyObject* py_broadcast(PyObject*, PyObject* args) {
  PyObject *data, *group;
  int root, tag;
  Common common;
  if (!PyArg_ParseTuple(args, "OOii", &data, &group, &root, &tag) || !read_common(&common, data, data, group, tag))
    return nullptr;
  if (root < 0 || size_t(root) >= common.group.ranks.size()) {
    PyErr_Format(PyExc_ValueError, "[mpi] a group of %zu has no position %d", common.group.ranks.size(), root);
    return nullptr;
  }
  void* to = common.out();
  size_t nbytes = common.out_bytes();
  return started(&common.buffers, [&] { return mpi::start_broadcast(common.group, to, nbytes, root, tag); });
}

// mpi_reduce_parts(dtype, combine, parts, out): the arithmetic of a sum over ranks, in this process.
PyObject* py_reduce_parts(PyObject*, PyObject* args) {
  const char *dtype, *combine;
  PyObject *parts, *out;
  mpi::Type type;
  mpi::Combine how;
  if (!PyArg_ParseTuple(args, "ssO!O", &dtype, &combine, &PyTuple_Type, &parts, &out) ||
      !read_reduction(dtype, combine, &type, &how))
    return nullptr;
  Buffers result;
  if (!result.take(0, out, true)) return nullptr;
  std::vector<Buffers> views(size_t(PyTuple_GET_SIZE(parts)));
  std::vector<const void*> pointers;
  for (size_t i = 0; i < views.size(); ++i) {
    if (!views[i].take(0, PyTuple_GET_ITEM(parts, Py_ssize_t(i)), false)) return nullptr;
    if (views[i].list[0].len != result.list[0].len) {
      PyErr_SetString(PyExc_ValueError, "mpi_reduce_parts: parts and result have the same size");
      return nullptr;
    }
    pointers.push_back(views[i].list[0].buf);
  }
  mpi::reduce_parts(type, how, pointers, result.list[0].buf, size_t(result.list[0].len) / mpi::size_of(type));
  Py_RETURN_NONE;
}

PyMethodDef kMethods[] = {
    {"mpi_begin", entry_point<py_begin>, METH_VARARGS,
     "mpi_begin(path, level): MPI_Init_thread of the library behind mpi4py's module, on a thread of its own."},
    {"mpi_begun", entry_point<py_begun>, METH_NOARGS, "mpi_begun() -> None, or (error code, level) of mpi_begin."},
    {"mpi_connect", entry_point<py_connect>, METH_VARARGS,
     "mpi_connect(path, communicator, byte, rank, size, most_tags, piece=2**30): use the MPI behind mpi4py's module."},
    {"mpi_disconnect", entry_point<py_disconnect>, METH_NOARGS, "mpi_disconnect(): nothing starts any more."},
    {"mpi_break_off", entry_point<py_break_off>, METH_O, "mpi_break_off(reason): all exchange fails from now on."},
    {"mpi_lost", entry_point<py_lost>, METH_NOARGS, "mpi_lost() -> whether MPI has reported a rank that is gone."},
    {"mpi_set_limits", entry_point<py_set_limits>, METH_VARARGS,
     "mpi_set_limits(warn_s, limit_s): when a wait says whom it waits for, and when it raises (0: never)."},
    {"mpi_set_error_type", entry_point<py_set_error_type>, METH_O, "mpi_set_error_type(class): what failures raise."},
    {"mpi_isend", entry_point<py_isend>, METH_VARARGS, "mpi_isend(buffer, destination, tag) -> MpiOperation"},
    {"mpi_irecv", entry_point<py_irecv>, METH_VARARGS, "mpi_irecv(buffer, source, tag) -> MpiOperation"},
    {"mpi_agree", entry_point<py_agree>, METH_VARARGS, "mpi_agree(number, fingerprint, words) -> MpiOperation"},
    {"mpi_leave", entry_point<py_leave>, METH_VARARGS, "mpi_leave(words) -> MpiOperation"},
    {"mpi_all_reduce", entry_point<py_all_reduce>, METH_VARARGS,
     "mpi_all_reduce(dtype, 'sum' | 'max' | 'min', in, out, ranks, tag) -> MpiOperation"},
    {"mpi_reduce_scatter", entry_point<py_reduce_scatter>, METH_VARARGS,
     "mpi_reduce_scatter(dtype, 'sum' | 'max' | 'min', in, out, ranks, tag) -> MpiOperation"},
    {"mpi_all_gather", entry_point<py_all_gather>, METH_VARARGS,
     "mpi_all_gather(in, out, ranks, tag) -> MpiOperation"},
    {"mpi_all_to_all", entry_point<py_all_to_all>, METH_VARARGS,
     "mpi_all_to_all(in, out, ranks, tag) -> MpiOperation"},
    {"mpi_permute", entry_point<py_permute>, METH_VARARGS,
     "mpi_permute(in, out, source, destinations, tag) -> MpiOperation; source -1: out is zeros"},
    {"mpi_broadcast", entry_point<py_broadcast>, METH_VARARGS,
     "mpi_broadcast(data, ranks, root, tag) -> MpiOperation; root is a position among ranks"},
    {"mpi_reduce_parts", entry_point<py_reduce_parts>, METH_VARARGS,
     "mpi_reduce_parts(dtype, combine, parts, out): a sum over ranks in this process, as between processes."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int register_mpi(PyObject* module) {
  OperationType = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&kOperationSpec));
  if (OperationType == nullptr) return -1;
  if (PyModule_AddObjectRef(module, "MpiOperation", reinterpret_cast<PyObject*>(OperationType)) < 0) return -1;
  return PyModule_AddFunctions(module, kMethods);
}

}  // namespace weft
