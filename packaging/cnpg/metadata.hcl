metadata = {
  name                     = "pg-sweep"
  sql_name                 = "pg_sweep"
  image_name               = "pg-sweep"
  licenses                 = ["PostgreSQL"]
  shared_preload_libraries = ["pg_sweep"]
  postgresql_parameters    = {
    max_worker_processes = "20"
  }
  extension_control_path   = []
  dynamic_library_path     = []
  ld_library_path          = []
  bin_path                 = []
  env                      = {}
  auto_update_os_libs      = false
  required_extensions      = []
  create_extension         = true

  versions = {
    trixie = {
      "18" = {
        package = "0.3.0-1.pgdg13+1"
        sql     = "0.3.0"
      }
    }
    bookworm = {
      "18" = {
        package = "0.3.0-1.pgdg12+1"
        sql     = "0.3.0"
      }
    }
  }
}
