// Calls with bad pointers, on a small signal stack, by old numbers and with openat2's flags; prints what each answers.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
static const char *vendor; static int r;
static void on(int s){(void)s; struct stat st; char b[64]; r=stat(vendor,&st); if(!r) r=access(vendor,R_OK); if(!r){int f=open(vendor,O_RDONLY); r=read(f,b,8)==7?0:-2; close(f);} }
int main(int c,char**v){(void)c;
 setbuf(stdout,0); vendor=v[1]; struct stat st;
 char *p=mmap(0,8192,3,MAP_PRIVATE|MAP_ANONYMOUS,-1,0); munmap(p+4096,4096);
 memcpy(p+4096-12,"/sys/bus/pci",12);
 char*bad[]={(char*)1,p+4096,p+4096-12,(char*)-8,p+4095-11};
 for(int i=0;i<5;i++){errno=0;int x=stat(bad[i],&st);printf("stat %d %s|",x,strerror(errno));errno=0;x=open(bad[i],O_RDONLY);printf("open %d %s|",x,strerror(errno)); char b[10];errno=0;x=readlink(bad[i],b,10);printf("readlink %d %s|",x,strerror(errno));errno=0; x=rename(bad[i],vendor);printf("rename %d %s\n",x,strerror(errno));}
 stack_t ss={.ss_sp=mmap(0,8192,3,MAP_PRIVATE|MAP_ANONYMOUS,-1,0),.ss_size=8192}; sigaltstack(&ss,0);
 struct sigaction sa={.sa_handler=on,.sa_flags=SA_ONSTACK};sigaction(SIGUSR1,&sa,0);raise(SIGUSR1);printf("altstack %d\n",r);
 int d=open("/sys/bus/pci/devices",O_RDONLY|O_DIRECTORY); char buf[4096]; long n=syscall(SYS_getdents,d,buf,4096); long at=0; while(at<n){unsigned short l=*(unsigned short*)(buf+at+16);printf("[%s %d]",buf+at+18,buf[at+l-1]);at+=l;} printf("\n");
 int sys=open("/sys",O_PATH); unsigned long R[]={0,RESOLVE_BENEATH,RESOLVE_IN_ROOT,RESOLVE_NO_SYMLINKS,RESOLVE_NO_MAGICLINKS,RESOLVE_NO_XDEV};
 char abs[200],rel[200],up[200];snprintf(abs,200,"%s",vendor+4);snprintf(rel,200,"%s",vendor+5);snprintf(up,200,"../..%s",vendor+4);
 for(unsigned i=0;i<6;i++){char*ps[]={rel,abs,up,(char*)vendor}; for(int j=0;j<4;j++){struct open_how h={.flags=O_RDONLY,.resolve=R[i]};errno=0;long f=syscall(SYS_openat2,sys,ps[j],&h,sizeof h);printf("%lx %s: %s\n",R[i],ps[j],f>=0?"ok":strerror(errno));}}
 int f; errno=0; f=open(vendor,O_WRONLY); printf("wr %d %s\n",f,strerror(errno)); errno=0;f=open(vendor,O_RDONLY|O_TRUNC); printf("trunc %d %s\n",f,strerror(errno)); errno=0; f=truncate(vendor,0); printf("truncate %d %s\n",f,strerror(errno)); printf("fopen %p\n",(void*)fopen(vendor,"r+"));
 f=open(vendor,O_RDONLY); char b[10]; printf("%zd\n",read(f,b,10));
}
