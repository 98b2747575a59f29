// SPDX-License-Identifier: GPL-2.0
/* Simulated: not an Intel Gaudi product. It needs the kernel's own ib_uverbs, as the vendor's does. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>

extern int uverbs_idr_class;
int *habanalabs_ib_needs = &uverbs_idr_class;

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
