// The loaded MPI: its functions, messages, and waiting for operations.
#include "mpi.h"

#include <dlfcn.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

#include "mpi_library.h"

namespace weft::mpi {
namespace {

// What is known of the MPI that is loaded; written by `connect` before any operation starts.
struct Library {
  int (*isend)(const void*, int, uintptr_t, int, int, uintptr_t, void*);
  int (*irecv)(void*, int, uintptr_t, int, int, uintptr_t, void*);
  int (*test)(void*, int*, void*);
  int (*cancel)(void*);
  int (*error_string)(int, char*, int*);
  uintptr_t communicator, byte;
  int rank, size, most_tags;
  size_t piece;
  pid_t process;
};
Library library;
std::atomic<bool> is_connected{false}, is_broken{false}, is_lost{false};
std::mutex calls;  // around every call of MPI
std::mutex reasons;
std::string reason_broken;

double warn_seconds = 10, limit_seconds = 0;

using Clock = std::chrono::steady_clock;

std::string error_text(int code) {
  char text[1024] = "";
  int length = 0;
  library.error_string(code, text, &length);
  return std::string(text);
}

void require_usable() {
  if (!is_connected) throw Failure("weft.distributed.initialize() has not been called in this process");
  if (getpid() != library.process)
    throw Failure(
        "this process was forked from rank " + std::to_string(library.rank) +
        ", and only rank " + std::to_string(library.rank) +
        " itself can take part in collectives; start workers with the method 'spawn' and give them host values");
  if (is_broken) {
    std::lock_guard<std::mutex> guard(reasons);
    throw Failure("the processes no longer stand at the same place, since an earlier program failed: " +
                  reason_broken);
  }
}

// A status of any MPI fits; nobody reads it.
struct alignas(16) Status {
  char bytes[256];
};

void nap(int64_t nanoseconds) {
  timespec time{0, long(nanoseconds)};
  nanosleep(&time, nullptr);
}

}  // namespace

namespace {
std::atomic<bool> has_begun{false};
int begin_code = 0, level_provided = 0;

// The functions of the library that mpi4py's module is linked to; mpi4py keeps it loaded.
void* find_function(const std::string& path, const char* name) {
  void* handle = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) return nullptr;
  void* function = dlsym(handle, name);
  dlclose(handle);
  return function;
}
}  // namespace

std::string begin(const std::string& path, int level) {
  auto function = reinterpret_cast<int (*)(int*, char***, int, int*)>(find_function(path, "MPI_Init_thread"));
  if (function == nullptr) return "no MPI_Init_thread behind " + path;
  has_begun = false;
  std::thread([function, level] {
    begin_code = function(nullptr, nullptr, level, &level_provided);
    has_begun = true;
  }).detach();
  return "";
}

bool begun(int* code, int* provided) {
  if (!has_begun) return false;
  *code = begin_code;
  *provided = level_provided;
  return true;
}

std::string connect(const Connection& connection) {
  auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(find_function(connection.path, name));
    return function != nullptr;
  };
  if (!find(library.isend, "MPI_Isend") || !find(library.irecv, "MPI_Irecv") || !find(library.test, "MPI_Test") ||
      !find(library.cancel, "MPI_Cancel") || !find(library.error_string, "MPI_Error_string"))
    return "no MPI_Isend, MPI_Irecv, MPI_Test, MPI_Cancel and MPI_Error_string behind " + connection.path;
  library.communicator = connection.communicator;
  library.byte = connection.byte;
  library.rank = connection.rank;
  library.size = connection.size;
  library.most_tags = connection.most_tags;
  library.piece = connection.piece;
  library.process = getpid();
  is_broken = false;
  is_connected = true;
  return "";
}

void disconnect() { is_connected = false; }
bool connected() { return is_connected; }
int rank() { return is_connected ? library.rank : 0; }
int size() { return is_connected ? library.size : 1; }

bool lost() { return is_lost; }

void break_off(const std::string& reason) {
  std::lock_guard<std::mutex> guard(reasons);
  if (is_broken) return;
  reason_broken = reason;
  is_broken = true;
}

void Messages::add(void* data, size_t nbytes, int peer, int tag, bool sends) {
  require_usable();
  if (tag >= kCollectiveTags) tag = kCollectiveTags + (tag - kCollectiveTags) % (library.most_tags - kCollectiveTags);
  char* position = static_cast<char*>(data);
  std::lock_guard<std::mutex> guard(calls);
  for (size_t left = nbytes; left > 0; left -= std::min(left, library.piece), position += library.piece) {
    int count = int(std::min(left, library.piece));
    Message message{0, peer};
    int code = sends ? library.isend(position, count, library.byte, peer, tag, library.communicator, &message.request)
                     : library.irecv(position, count, library.byte, peer, tag, library.communicator, &message.request);
    if (code != 0)
      throw Failure("rank " + std::to_string(peer) + " cannot be reached (MPI: " + error_text(code) + ")");
    pending_.push_back(message);
  }
}

void Messages::send(const void* data, size_t nbytes, int destination, int tag) {
  add(const_cast<void*>(data), nbytes, destination, tag, true);
}

void Messages::receive(void* data, size_t nbytes, int source, int tag) { add(data, nbytes, source, tag, false); }

bool Messages::done() {
  if (pending_.empty()) return true;
  Status status;
  std::lock_guard<std::mutex> guard(calls);
  for (size_t i = 0; i < pending_.size();) {
    int flag = 0;
    int code = library.test(&pending_[i].request, &flag, &status);
    if (code != 0) {
      int peer = pending_[i].peer;
      is_lost = true;
      pending_.erase(pending_.begin() + long(i));
      throw Failure("rank " + std::to_string(peer) + " has ended or failed (MPI: " + error_text(code) + ")");
    }
    if (flag) {
      pending_[i] = pending_.back();
      pending_.pop_back();
    } else {
      ++i;
    }
  }
  return pending_.empty();
}

void Messages::awaited(std::vector<int>* ranks) const {
  for (const Message& message : pending_) {
    size_t at = 0;
    while (at < ranks->size() && (*ranks)[at] < message.peer) ++at;
    if (at == ranks->size() || (*ranks)[at] != message.peer)
      ranks->insert(ranks->begin() + long(at), message.peer);
  }
}

bool Messages::cancel() {
  if (pending_.empty()) return true;
  if (!is_connected || getpid() != library.process) return false;
  Status status;
  std::lock_guard<std::mutex> guard(calls);
  for (size_t i = 0; i < pending_.size();) {
    int flag = 0;
    library.cancel(&pending_[i].request);
    bool over = library.test(&pending_[i].request, &flag, &status) == 0 && flag;
    if (over) {
      pending_[i] = pending_.back();
      pending_.pop_back();
    } else {
      ++i;
    }
  }
  return pending_.empty();
}

// A thread that waits gives way to others: at once after 20 us in which nothing moved, and sleeps after 2 ms. MPI moves
// data inside of our calls alone, and does not say so, but a call that moved some takes longer than this.
constexpr double kMoved = 2e-6;

bool wait_for(Operation& operation, double seconds) {
  if (operation.poll()) return true;
  Clock::time_point start = Clock::now(), moved = start, now = start;
  int64_t pause_ns = 20'000;
  for (;;) {
    for (int i = 0; i < 8; ++i) {
      if (operation.poll()) return true;
      Clock::time_point before = std::exchange(now, Clock::now());
      if (std::chrono::duration<double>(now - before).count() < kMoved) continue;
      moved = now;
      pause_ns = 20'000;
    }
    if (std::chrono::duration<double>(now - start).count() >= seconds) return false;
    double idle = std::chrono::duration<double>(now - moved).count();
    if (idle < 20e-6) continue;
    if (idle < 2e-3) {
      sched_yield();
    } else {
      nap(pause_ns);
      pause_ns = std::min<int64_t>(pause_ns + pause_ns / 4, 1'000'000);
    }
    now = Clock::now();
  }
}

void set_limits(double warn_s, double limit_s) {
  warn_seconds = warn_s;
  limit_seconds = limit_s;
}

std::string said_of_missing(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  size_t shown = std::min<size_t>(ranks.size(), 16);
  for (size_t i = 0; i < shown; ++i)
    text += (i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ") + std::to_string(ranks[i]);
  if (shown < ranks.size()) text += " and " + std::to_string(ranks.size() - shown) + " more";
  return text;
}

std::string waited_text(const Operation& operation, const std::string& what, double waited_s) {
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.3g", waited_s);
  std::vector<int> missing = operation.awaited();
  std::string whom = missing.empty() ? "MPI" : said_of_missing(missing);
  return "rank " + std::to_string(rank()) + " has waited " + seconds + " s for " + whom + " in " + what;
}

bool wait_part(Operation& operation, const std::string& what, double part_s, double limit_s, Waited* waited) {
  double limit = limit_s > 0 ? limit_s : limit_seconds;
  if (wait_for(operation, part_s)) return true;
  waited->seconds += part_s;
  if (!waited->warned && waited->seconds >= warn_seconds) {
    waited->warned = true;
    std::string text = "[weft] " + waited_text(operation, what, waited->seconds) + "\n";
    fputs(text.c_str(), stderr);
    fflush(stderr);
  }
  if (limit > 0 && waited->seconds >= limit)
    throw Failure(waited_text(operation, what, waited->seconds) +
                  ", which is the limit that the option collective_timeout sets; the program of that process is stuck, "
                  "slower than the limit, or elsewhere");
  return false;
}

void wait(Operation& operation, const std::string& what) {
  Waited waited;
  while (!wait_part(operation, what, 0.1, 0, &waited)) {
  }
}

}  // namespace weft::mpi
