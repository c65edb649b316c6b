"""Messages and gRPC methods of the kubelet's plugin APIs and of KEDA's external scaler.

There is one module for each API, with a typed stub beside it. `device_plugin_v1beta1.AllocateRequest` is a
protobuf message class, `device_plugin_v1beta1.DevicePlugin.Allocate` a method that `grpc_calls` calls or
serves. `make protos` writes the modules, the stubs and `descriptors.binpb` from the `.proto` files in the
repository's folder `protos/`, which also says where those come from.
"""
