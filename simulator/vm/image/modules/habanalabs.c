// SPDX-License-Identifier: GPL-2.0
/* Simulated: not an Intel Gaudi product. It needs habanalabs_compat, and no other module needs it. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>

extern int habanalabs_compat_simulated;
int *habanalabs_needs = &habanalabs_compat_simulated;

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
