################################################################################
#
# flashscope-agent
#
################################################################################

FLASHSCOPE_AGENT_VERSION = 0.2.0
# The source tree that this external tree lies in.
FLASHSCOPE_AGENT_SITE = $(BR2_EXTERNAL_FLASHSCOPE_PATH)/../..
FLASHSCOPE_AGENT_SITE_METHOD = local
# Cargo's build directory is large and not needed.
FLASHSCOPE_AGENT_OVERRIDE_SRCDIR_RSYNC_EXCLUSIONS = --exclude target --exclude agent/build
FLASHSCOPE_AGENT_LICENSE = Apache-2.0
FLASHSCOPE_AGENT_LICENSE_FILES = LICENSE

define FLASHSCOPE_AGENT_BUILD_CMDS
	$(MAKE) -C $(@D)/agent one CROSS="$(TARGET_CROSS)" ARCH=target BUILD=$(@D)/out
endef

define FLASHSCOPE_AGENT_INSTALL_TARGET_CMDS
	$(INSTALL) -D -m 0755 $(@D)/out/target/flashscope-agent $(TARGET_DIR)/usr/bin/flashscope-agent
endef

define FLASHSCOPE_AGENT_LINUX_CONFIG_FIXUPS
	$(call KCONFIG_ENABLE_OPT,CONFIG_FTRACE)
	$(call KCONFIG_ENABLE_OPT,CONFIG_KPROBES)
	$(call KCONFIG_ENABLE_OPT,CONFIG_KPROBE_EVENTS)
	$(call KCONFIG_ENABLE_OPT,CONFIG_FTRACE_SYSCALLS)
	$(call KCONFIG_ENABLE_OPT,CONFIG_BLK_DEV_IO_TRACE)
endef

$(eval $(generic-package))
