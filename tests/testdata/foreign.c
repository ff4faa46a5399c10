// A library in place of the core that was built from another model. With -DNO_ENTRY it is no core at all.
#ifdef NO_ENTRY
long something_else(void) { return 0; }
#else
long nvmlfab_call(void) { return 42; }
#endif
