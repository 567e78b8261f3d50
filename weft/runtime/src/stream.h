// The stream: programs run in the order they were launched, behind the caller's back, and their buffers know it.
//
// A launched program is a Task, the Event of its output buffers. Whoever waits for a task helps: it runs queued
// tasks itself unless the stream's thread is already at it, so that a short program followed by a wait costs no
// switch of threads. Programs with Python steps run on the stream's thread only. The thread is woken when the
// queued work is worth it, when somebody asks whether a buffer is ready, or for Python steps.
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

// Whether the event of a buffer is over, without waking anybody.
bool stream_event_over(const Event* event);

// Whether the task with this number was launched before an interrupt. What such a task has written so far is of no use:
// its outputs raise wherever they are used, and so do the outputs of tasks that read them.
bool stream_cancelled(uint64_t number);

// Handles signals; 0, or -1 with the error of a handler set, or with KeyboardInterrupt if the task that this thread runs
// was interrupted. GIL held.
int stream_check_interrupt();

// The number of the task that this thread runs, or 0.
uint64_t stream_running();

// What a kernel of the task with this number reads now and then: not 0 means that it is to return at once, leaving its
// output as it is. 0: no task of the stream, never told to stop.
const int32_t* stream_stop_word(uint64_t number);

// A callback of a task of the stream begins or ends; on the thread that runs it.
void stream_calls(bool begins);

int register_stream(PyObject* module);  // set_async, get_async, stream_drain

}  // namespace weft
