// SPDX-License-Identifier: GPL-2.0
/*
 * Simulated: not an Intel Gaudi product. One source for all modules of the driver: each says that it is loaded, and has
 * a symbol by its own name (kmod_habanalabs_cn), which another module may need (NEEDS).
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>

int __KBUILD_MODNAME;
EXPORT_SYMBOL(__KBUILD_MODNAME);

#ifdef NEEDS
extern int NEEDS;
static int *needs __used = &NEEDS;
#endif

static int __init load(void)
{
	pr_info("loaded\n");
	return 0;
}

static void __exit unload(void)
{
}

module_init(load);
module_exit(unload);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Simulated: not an Intel Gaudi product");
