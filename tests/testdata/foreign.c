// A library in the core's place that was built from another model, or, with -DNO_ENTRY, is no core at all.
#ifdef NO_ENTRY
long something_else(void) { return 0; }
#else
long nvmlfab_call(void) { return 42; }
#endif
