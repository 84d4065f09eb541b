# The two commands a newcomer needs: make demo, make test. Both install what is missing first (make setup).
.PHONY: setup setup-vm demo demo-vm test test-vm crashtest bench lint build

# Root is needed for containers; sudo is used where you are not root.
AS_ROOT := $(shell [ "$$(id -u)" -eq 0 ] || echo sudo --preserve-env=INFRABED_STATE_DIR,INFRABED_IMAGE_CACHE,CI,POINTS,EVERY,FROM,JOBS,SECOND)

# By its full path: sudo's own PATH does not lead to a Node.js of nvm or /opt.
NODE := $(shell command -v node || echo node)

setup:
	@sh scripts/setup.sh

# With libvirt and QEMU, for virtual machines.
setup-vm:
	@sh scripts/setup.sh vm

# One hardware task on a virtual machine, from clone to report.
demo-vm: setup-vm
	@$(AS_ROOT) $(NODE) scripts/demo.mjs vm

build:
	@npm run --silent build

demo: setup
	@$(AS_ROOT) $(NODE) scripts/demo.mjs

# With FILES="word ..." only the test files whose name holds a word, and no lint. With VM=1 also one whole trial on a
# virtual machine, and what that needs is installed.
test: setup$(if $(VM),-vm) $(if $(FILES),,lint)
	@$(AS_ROOT) $(NODE) scripts/test.mjs $(if $(VM),--vm) $(FILES)

# All that boots virtual machines: see docs/virtual-machines.md.
test-vm: setup-vm
	@$(AS_ROOT) $(NODE) scripts/test.mjs test/vm/

# Kills a controller at every failpoint of one trial and lets the next go on; see docs/crash-safety.md.
crashtest: setup
	@$(AS_ROOT) $(NODE) --import=tsx test/crash/main.ts

bench: setup
	@$(AS_ROOT) $(NODE) --import=tsx bench/index.ts

lint:
	@npm run --silent lint
