// Threads that the interpreter ends: they stop where they are.
//
// A thread that asks for the GIL once the interpreter finalises is ended by pthread_exit, which unwinds its stack: the
// destructors of our frames would run without the GIL, beside the thread that takes the interpreter apart, and a
// noexcept function would end the process. It happens wherever the GIL is taken back, in Python code that we call too,
// so it is caught where all of our frames pass: their personality routine, which the linker wraps. Such a thread sleeps
// until the process is over, as all of them do since Python 3.14.
#include <unistd.h>
#include <unwind.h>

extern "C" {

_Unwind_Reason_Code __real___gxx_personality_v0(int version, _Unwind_Action actions, _Unwind_Exception_Class thrown_class,
                                                _Unwind_Exception* thrown, _Unwind_Context* context);

_Unwind_Reason_Code __wrap___gxx_personality_v0(int version, _Unwind_Action actions, _Unwind_Exception_Class thrown_class,
                                                _Unwind_Exception* thrown, _Unwind_Context* context) {
  while ((actions & _UA_FORCE_UNWIND) != 0) pause();
  return __real___gxx_personality_v0(version, actions, thrown_class, thrown, context);
}

}  // extern "C"
