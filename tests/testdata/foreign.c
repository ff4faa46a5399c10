// A library in place of the core that was built from another model. With -DFORMER it has the entry of cores that start by themselves,
// and with -DNO_ENTRY it is no core at all.
#if defined NO_ENTRY
long something_else(void) { return 0; }
#elif defined FORMER
long nvmlfab_call(void) { return 42; }
#else
long nvmlfab_answer(void) { return 42; }
#endif
