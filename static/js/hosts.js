// The hosts' pages: the menu of a host.

import "./queue/menu.js";
