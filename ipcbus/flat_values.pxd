cdef Py_ssize_t put_value(char *place, Py_ssize_t room, object value) except -1
