from tfdeploy.transport.ssh import import_invoke

import_invoke.import_invoke()
