from tfdeploy.transport.ssh import lean_imports

lean_imports.import_invoke()
lean_imports.defer_metadata_import()
