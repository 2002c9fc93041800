// The actions of the queue's page. Rows, menus and dialogs come from the server; these modules attach to their attributes.

import "./queue_edit.js";
import "./queue_menu.js";
import "./queue_select.js";
import "./queue_keys.js";
import "./queue_drag.js";
