/* SPDX-License-Identifier: GPL-2.0 */
/* The core asks for this header of U-Boot's for kmalloc() and kfree(): yportenv.h has them from the kernel. */
#include "yportenv.h"
