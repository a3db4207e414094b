# What compiled code needs to know of references where the interpreter runs without its lock.
from cpython.object cimport PyObject

cdef extern from *:
    """
/* Whether only the caller refers to an object. Without the GIL another thread may drop its reference meanwhile: only the
   thread that made the object can be certain, and only while no other thread has taken a reference that it keeps. */
static inline int ib_is_sole(PyObject *o) {
#ifdef Py_GIL_DISABLED
    return o->ob_tid == _Py_ThreadId() && __atomic_load_n(&o->ob_ref_local, __ATOMIC_RELAXED) == 1
        && __atomic_load_n(&o->ob_ref_shared, __ATOMIC_ACQUIRE) == 0;
#else
    return Py_REFCNT(o) == 1;
#endif
}
/* Lets threads use an object at the same time without a counter of references that all of them change. */
static inline void ib_share(PyObject *o) {
#if defined(Py_GIL_DISABLED) && PY_VERSION_HEX >= 0x030E0000
    PyUnstable_Object_EnableDeferredRefcount(o);
#elif defined(Py_GIL_DISABLED)
    /* 3.13 has no name for that: the object lives for ever, as the functions of Python do once a thread was started. */
    o->ob_tid = _Py_UNOWNED_TID;
    o->ob_ref_local = _Py_IMMORTAL_REFCNT_LOCAL;
    o->ob_ref_shared = 0;
#else
    (void)o;
#endif
}
    """
    bint is_sole "ib_is_sole"(PyObject *o) noexcept
    void share "ib_share"(PyObject *o) noexcept


cdef inline int share_methods(made) except -1:
    """Lets threads call the methods of a compiled class at the same time.

    Each call changes the counter of the method: without this, two threads that send on two sessions wait for its cache line.
    """
    for each in vars(made).values():
        if callable(each):
            share(<PyObject *>each)
    return 0
