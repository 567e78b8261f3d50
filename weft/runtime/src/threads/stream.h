// The stream: runs launched programs in order, asynchronously; output buffers know the task that writes them.
//
// A launched program is a Task, which is the Event of its output buffers. A thread that waits for a task runs queued
// tasks itself, unless the stream's thread is already running: a short program followed by a wait needs no thread
// switch. Programs with Python steps run on the stream's thread only. That thread is woken when enough work is queued,
// when somebody asks whether a buffer is ready, or for Python steps.
#pragma once

#include "exec.h"

namespace weft {

// True if programs may be launched from this thread now (not switched off, not inside a task).
bool stream_enabled();

// True if nothing is queued or running.
bool stream_idle();

// Queues the program; GIL held. outputs are owned buffers already made for it (borrowed here): they become pending.
// Host scalars are copied. May wait if much is queued. 0, or -1 or kNotStarted with a Python error set.
int stream_launch(Executable* executable, const Operand* operands, Buffer* const* outputs);

// Whether the event of a buffer is over; wakes no thread.
bool stream_event_over(const Event* event);

// Whether the task with this number was launched before an interrupt. The data it has written is not valid: its outputs
// raise wherever they are used, and so do the outputs of tasks that read them.
bool stream_cancelled(uint64_t number);

// Handles signals; 0, or -1 with the error of a handler set, or with KeyboardInterrupt if the task that this thread
// runs was interrupted. GIL held.
int stream_check_interrupt();

// The number of the task that this thread runs, or 0.
uint64_t stream_running();

// A word that kernels of the task with this number poll: nonzero means that the kernel must return at once, leaving its
// output incomplete. 0: not a task of the stream; the word stays zero.
const int32_t* stream_stop_word(uint64_t number);

// A callback of a stream task begins or ends; called on the thread that runs it.
void stream_calls(bool begins);

int register_stream(PyObject* module);  // set_async, get_async, stream_drain

}  // namespace weft
