# ---- KUnit ---------------------------------------------------------------------------------------------------------

# The suites of logic/tests in a kernel that is built for them, as a program (User Mode Linux): it needs neither root nor a
# virtual machine. What builds a kernel beside gcc and make:
kunit_tools := flex bison bc

test-kunit:
	@missing=; for tool in $(kunit_tools); do command -v $$tool >/dev/null || missing+=" $$tool"; done; \
	if [ -z "$$missing" ]; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "installing$$missing"; export DEBIAN_FRONTEND=noninteractive; \
	  install() { apt-get install -y -q --no-install-recommends $$missing </dev/null; }; \
	  install || { apt-get update -q && install; }; \
	else \
	  echo "missing:$$missing; install them (on Debian as root: apt-get install$$missing) and run make test-kunit again" >&2; exit 1; \
	fi
	@cd $(root) && go run ./kernel/vm/kunit
