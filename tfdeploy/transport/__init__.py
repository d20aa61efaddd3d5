from tfdeploy.transport import slim

slim.import_invoke()
